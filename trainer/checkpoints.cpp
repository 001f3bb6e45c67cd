#include "trainer/checkpoints.h"

#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "base/error.h"
#include "base/units.h"
#include "checkpoint/find.h"
#include "checkpoint/ranks.h"
#include "comm/agreement.h"
#include "trainer/output.h"
#include "trainer/report/history.h"

namespace zeroth::trainer {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kMostHistory = int64_t{64} << 20;
constexpr char kBestLoss[] = "best.loss";
constexpr char kOwed[] = "evaluation.owed";

template <typename T>
std::optional<T> value(const engine::ClientState& state, const char* name) {
  const auto found = state.find(name);
  const T* const known = found == state.end() ? nullptr : std::get_if<T>(&found->second);
  return known == nullptr ? std::nullopt : std::optional<T>(*known);
}

}  // namespace

Checkpoints::Checkpoints(const RunPlan& plan, engine::Engine& engine)
    : plan_(plan),
      engine_(engine),
      folder_(fs::path(plan.flags.output) / "checkpoints"),
      occasions_(plan.occasions(plan.flags.cadences.save)),
      best_(plan.flags.cadences),
      last_start_(std::chrono::steady_clock::now()),
      last_end_(last_start_) {}

Checkpoints::Loaded Checkpoints::load(engine::OnRead on_read) {
  Loaded loaded;
  const bool first = engine_.mesh().rank() == 0;
  const auto accept = [&](checkpoint::Reader& reader) {
    const Resumption found = resumption_of(reader.path(), reader.manifest());
    compare(found, plan_.identity, plan_.flags.resume, plan_.origins);
    const std::string& run = plan_.round.run;
    if (plan_.round.goes_on && plan_.resumed->run == run && found.run != run) {
      throw Error("{} is damaged, and {} is of an earlier run", plan_.resumed->checkpoint.string(),
                  found.checkpoint.string());
    }
    if (found.step != plan_.resumed->step && found.batch != plan_.config.batch.train_batch_size) {
      throw Error("{} is damaged; to go on from {} with another batch, name it: --resume {}",
                  plan_.resumed->checkpoint.string(), found.checkpoint.string(),
                  found.checkpoint.string());
    }
    loaded.step = found.step;
    if (first) loaded.history = reader.read_text(kHistoryFile, kMostHistory);
  };
  const auto done = engine_.load_checkpoint(plan_.resumed->from,
                                            {.accept = accept, .on_read = std::move(on_read)});
  if (!done) throw Error("{} is gone", plan_.resumed->checkpoint.string());
  loaded.path = done->path;
  loaded.warnings = done->warnings;
  loaded.owes_evaluation = value<int64_t>(done->client_state, kOwed).has_value();
  restore(done->client_state);
  look_for_best(loaded);
  last_saved_ = loaded.step;
  if (done->path.parent_path() == fs::weakly_canonical(folder_)) {
    good_.push_back(loaded.step);
  }
  return loaded;
}

void Checkpoints::restore(const engine::ClientState& state) {
  const auto saved = value<int64_t>(state, kBestSaved);
  best_.restore({.loss = value<double>(state, kBestLoss),
                 .step = value<int64_t>(state, kBestStep),
                 .saved_step = saved,
                 .folder = saved ? folder_of(*saved) : fs::path()});
}

// Looks before the first step: a run that found out only after its last one would be lost. The best
// model is in a checkpoint of this output, or beside the one from which the run resumes.
void Checkpoints::look_for_best(Loaded& loaded) {
  const BestModel::State before = best_.state();
  if (!before.saved_step || !plan_.flags.cadences.tracks_best) return;
  const fs::path source = loaded.path.parent_path();
  FoundBest best;
  const auto failure = checkpoint::failure_of([&] {
    if (engine_.mesh().rank() != 0) return;
    std::vector<fs::path> folders = {folder_};
    if (source != fs::weakly_canonical(folder_)) folders.push_back(source);
    best = find_best({.folders = std::move(folders),
                      .wanted = before,
                      .greater_is_better = plan_.flags.cadences.greater_is_better,
                      .step = loaded.step},
                     loaded.history);
    loaded.best_warning = best.warning;
  });
  throw_if_rank_0_failed(engine_.mesh(), failure);
  std::array numbers = {best.state.loss.value_or(0),
                        static_cast<double>(best.state.step.value_or(0)),
                        static_cast<double>(best.state.saved_step.value_or(0)),
                        best.state.folder.parent_path() == source ? 1.0 : 0.0};
  comm::agree(numbers, comm::Reduce::kSum, "where the best model is", engine_.mesh());
  if (numbers[2] == 0) return best_.restore({});
  const auto saved = static_cast<int64_t>(numbers[2]);
  best_.restore({.loss = numbers[0],
                 .step = static_cast<int64_t>(numbers[1]),
                 .saved_step = saved,
                 .folder = (numbers[3] != 0 ? source : folder_) / checkpoint::step_name(saved)});
}

// One that is made up for comes after its step was saved.
void Checkpoints::evaluated(int64_t step, double loss) {
  best_.evaluated(step, loss);
  if (std::find(good_.begin(), good_.end(), step) != good_.end())
    best_.saved(step, folder_of(step));
}

bool Checkpoints::due(int64_t step) const {
  if (!plan_.saves_checkpoints() || step == plan_.samples.total_steps) return false;
  const bool best = plan_.flags.cadences.save.at == Cadence::At::kBest;
  return best ? best_.step() == step : occasions_.at(step);
}

bool Checkpoints::due_at_end() const {
  if (!plan_.saves_checkpoints() || saved(plan_.samples.total_steps)) return false;
  const bool best = plan_.flags.cadences.save.at == Cadence::At::kBest;
  return !best || best_.step() == plan_.samples.total_steps;
}

bool Checkpoints::time_is_up() const {
  if (!plan_.flags.state.every_minutes || under_way()) return false;
  const std::chrono::duration<double> since = std::chrono::steady_clock::now() - last_end_;
  return since.count() >= 60 * *plan_.flags.state.every_minutes;
}

engine::CheckpointRequest Checkpoints::request(int64_t step, const WriteMore& write_more) const {
  BestModel with_this = best_;
  with_this.saved(step, folder_of(step));
  const BestModel::State& best = with_this.state();
  engine::CheckpointRequest request{
      .must_equal = plan_.identity.must_equal,
      .may_change = plan_.identity.may_change,
      .states = !plan_.flags.state.only_model,
      .keep_steps = named(),
      .write_files = [=](const fs::path& folder) { write_more(folder, with_this); }};
  if (const int64_t kept = most_kept(); kept > 0) {
    request.keep = kept + std::ssize(unconfirmed_) + 1;  // until this one is known to be good
  }
  put({.batch = plan_.config.batch.train_batch_size,
       .positions = plan_.positions_after(step),
       .samples = plan_.samples_after(step),
       .epochs = {plan_.samples.epoch_samples, plan_.samples.epoch_positions},
       .rank_batch = plan_.rank_batch,
       .measured = {.threads = at::get_num_threads(),
                    .step = engine_.measured_step() ? engine_.measured_step() : plan_.kept.step},
       .run = plan_.round.run},
      request.client_state);
  if (best.loss) {
    request.client_state[kBestLoss] = *best.loss;
    request.client_state[kBestStep] = *best.step;
  }
  if (best.saved_step) request.client_state[kBestSaved] = *best.saved_step;
  if (owes_evaluation_) request.client_state[kOwed] = int64_t{1};
  return request;
}

std::vector<std::string> Checkpoints::save(int64_t step, const WriteMore& write_more) {
  last_start_ = last_end_ = std::chrono::steady_clock::now();  // of one that fails, too
  const engine::SavedCheckpoint done = engine_.save_checkpoint(folder_, request(step, write_more));
  last_saved_ = step;
  return ended(done);
}

void Checkpoints::start(int64_t step, const WriteMore& write_more) {
  last_start_ = last_end_ = std::chrono::steady_clock::now();
  engine_.start_checkpoint(folder_, request(step, write_more));
  last_saved_ = step;
  confirmed_beside_ = false;
}

std::vector<std::string> Checkpoints::finish() {
  const auto step = std::exchange(last_saved_, std::nullopt);
  const engine::SavedCheckpoint done = engine_.finish_checkpoint();
  last_saved_ = step;
  return ended(done);
}

std::vector<std::string> Checkpoints::ended(const engine::SavedCheckpoint& done) {
  last_end_ = std::chrono::steady_clock::now();
  writing_seconds_ = done.writing_s;
  const double seconds = std::chrono::duration<double>(last_end_ - last_start_).count();
  best_.saved(*last_saved_, folder_of(*last_saved_));
  unconfirmed_.push_back(*last_saved_);
  const bool beside = done.held_up_s < 0.9 * seconds;
  std::vector<std::string> told = {fmt::format(
      "saved {} in {}{}", folder_of(*last_saved_).string(), format_duration(seconds),
      beside ? fmt::format(", beside training, which waited {}", format_duration(done.held_up_s))
             : "")};
  told.insert(told.end(), done.warnings.begin(), done.warnings.end());
  if (std::exchange(confirmed_beside_, false)) {
    for (std::string& warning : confirm()) told.push_back(std::move(warning));
  }
  return told;
}

std::vector<std::string> Checkpoints::confirm() {
  confirmed_beside_ = under_way();
  if (unconfirmed_.empty() || under_way()) return {};
  good_.insert(good_.end(), unconfirmed_.begin(), unconfirmed_.end());
  unconfirmed_.clear();
  const int64_t kept = most_kept();
  return kept == 0 ? std::vector<std::string>{} : engine_.keep_checkpoints(folder_, kept, named());
}

std::string Checkpoints::newest_good() const {
  return good_.empty()
             ? ""
             : fmt::format("; the newest good model is {}", folder_of(good_.back()).string());
}

fs::path Checkpoints::folder_of(int64_t step) const {
  return folder_ / checkpoint::step_name(step);
}

// Of the newest, where the best one is among those that are to be kept; 0: all.
int64_t Checkpoints::most_kept() const {
  const int64_t kept = plan_.flags.cadences.kept.value_or(0);
  const auto best = best_.saved_step();
  if (!best || kept < 2) return kept;
  const auto newest = std::min<size_t>(good_.size(), static_cast<size_t>(kept));
  const bool among =
      std::find(good_.end() - static_cast<ptrdiff_t>(newest), good_.end(), *best) != good_.end();
  return among ? kept : kept - 1;
}

std::set<int64_t> Checkpoints::named() const {
  return best_.saved_step() ? std::set<int64_t>{*best_.saved_step()} : std::set<int64_t>{};
}

}  // namespace zeroth::trainer
