#include "trainer/checkpoint_manager.h"

#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "base/error.h"
#include "base/text/units.h"
#include "checkpoint/find.h"
#include "comm/cpu_collectives.h"
#include "trainer/output.h"
#include "trainer/report/history.h"
#include "trainer/run_plan.h"

namespace zeroth::trainer {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kMaxHistoryBytes = int64_t{64} << 20;
constexpr char kBestLoss[] = "best.loss";
constexpr char kPendingEvaluation[] = "evaluation.owed";

template <typename T>
std::optional<T> value(const engine::ClientState& state, const char* name) {
  const auto found = state.find(name);
  const T* const known = found == state.end() ? nullptr : std::get_if<T>(&found->second);
  return known == nullptr ? std::nullopt : std::optional<T>(*known);
}

}  // namespace

CheckpointManager::CheckpointManager(const RunPlan& plan, engine::Engine& engine,
                                     WriteExtraFiles write_extra_files)
    : plan_(plan),
      engine_(engine),
      write_extra_files_(std::move(write_extra_files)),
      directory_(fs::path(plan.flags.output) / "checkpoints"),
      save_trigger_(plan.trigger(plan.flags.intervals.save)),
      best_(plan.flags.intervals) {}

CheckpointManager::ResumedCheckpoint CheckpointManager::load(engine::OnRead on_read) {
  ResumedCheckpoint loaded;
  const ResumePlan& planned = *plan_.resume_plan;
  const std::string wanted = planned.checkpoint.string();
  const auto accept = [&](checkpoint::CheckpointReader& reader) {
    const ResumePlan found = parse_resume_plan(reader.path(), reader.manifest());
    compare_fingerprints(found, plan_.fingerprint, plan_.flags.resume, plan_.origins);
    const std::string& run = plan_.attempt.run;
    if (plan_.attempt.resumes && planned.run == run && found.run != run) {
      throw Error("{} is damaged, and {} belongs to an earlier run", wanted,
                  found.checkpoint.string());
    }
    if (found.step != planned.step && found.batch != plan_.global_batch()) {
      throw Error("{} is damaged; to resume from {} with another batch size, use --resume {}",
                  wanted, found.checkpoint.string(), found.checkpoint.string());
    }
    loaded.step = found.step;
    if (engine_.mesh().rank() == 0)
      loaded.history = reader.read_text(kHistoryFile, kMaxHistoryBytes);
  };
  const auto done =
      engine_.load_checkpoint(planned.from, {.accept = accept, .on_read = std::move(on_read)});
  if (!done) throw Error("{} no longer exists", wanted);
  loaded.path = done->path;
  loaded.warnings = done->warnings;
  loaded.evaluation_pending = value<int64_t>(done->client_state, kPendingEvaluation).has_value();
  const auto saved = value<int64_t>(done->client_state, kBestSaved);
  best_.restore({.loss = value<double>(done->client_state, kBestLoss),
                 .step = value<int64_t>(done->client_state, kBestStep),
                 .saved_step = saved,
                 .directory = saved ? checkpoint_directory(*saved) : fs::path()});
  locate_best_model(loaded);
  last_saved_ = loaded.step;
  if (done->path.parent_path() == fs::weakly_canonical(directory_)) {
    good_steps_.push_back(loaded.step);
  }
  return loaded;
}

// Searches before the first step: a run that failed only after its last step would be lost. The
// best model is in a checkpoint of this output, or beside the one from which the run resumes.
void CheckpointManager::locate_best_model(ResumedCheckpoint& loaded) {
  if (!best_.saved_step() || !plan_.flags.intervals.tracks_best) return;
  const fs::path source = loaded.path.parent_path();
  if (engine_.mesh().rank() != 0) best_.restore({});
  run_on_rank_0(engine_.mesh(), [&] {
    std::vector<fs::path> directories = {directory_};
    if (source != fs::weakly_canonical(directory_)) directories.push_back(source);
    loaded.best_warning = best_.locate(directories, loaded.step, loaded.history);
  });
  std::array numbers = {best_.loss().value_or(0), static_cast<double>(best_.step().value_or(0)),
                        static_cast<double>(best_.saved_step().value_or(0)),
                        best_.directory().parent_path() == source ? 1.0 : 0.0};
  comm::all_reduce_values(numbers, comm::ReduceOp::kSum, "where the best model is", engine_.mesh());
  if (numbers[2] == 0) return best_.restore({});
  const auto saved = static_cast<int64_t>(numbers[2]);
  best_.restore(
      {.loss = numbers[0],
       .step = static_cast<int64_t>(numbers[1]),
       .saved_step = saved,
       .directory = (numbers[3] != 0 ? source : directory_) / checkpoint::step_name(saved)});
}

// Updates the best model's checkpoint too: a pending evaluation runs after its step was saved.
void CheckpointManager::record_evaluation(int64_t step, double loss) {
  best_.observe_evaluation(step, loss);
  if (std::find(good_steps_.begin(), good_steps_.end(), step) != good_steps_.end())
    best_.observe_checkpoint(step, checkpoint_directory(step));
}

bool CheckpointManager::due(int64_t step) const {
  if (!plan_.saves_checkpoints() || step == plan_.samples.total_steps) return false;
  return saves_best() ? best_.step() == step : save_trigger_.is_due(step);
}

bool CheckpointManager::due_at_end() const {
  if (!plan_.saves_checkpoints() || is_saved(plan_.samples.total_steps)) return false;
  return !saves_best() || best_.step() == plan_.samples.total_steps;
}

bool CheckpointManager::saves_best() const {
  return plan_.flags.intervals.save.mode == Interval::Mode::kBest;
}

bool CheckpointManager::is_interval_over() const {
  if (!plan_.flags.state.every_minutes || save_in_progress()) return false;
  return since_end_.seconds() >= 60 * *plan_.flags.state.every_minutes;
}

engine::CheckpointRequest CheckpointManager::request(int64_t step) const {
  BestModel with_this = best_;
  with_this.observe_checkpoint(step, checkpoint_directory(step));
  const BestModel::TrackedState& best = with_this.state();
  engine::CheckpointRequest request{.must_equal = plan_.fingerprint.must_equal,
                                    .may_change = plan_.fingerprint.may_change,
                                    .states = !plan_.flags.state.only_model,
                                    .keep_steps = protected_steps(),
                                    .write_files = [this, with_this](const fs::path& directory) {
                                      write_extra_files_(directory, with_this);
                                    }};
  if (const int64_t kept = save_total_limit(); kept > 0) {
    request.keep = kept + std::ssize(unconfirmed_steps_) + 1;  // until this one is known to be good
  }
  save_progress({.batch = plan_.global_batch(),
                 .positions = plan_.positions_after(step),
                 .samples = plan_.samples_after(step),
                 .epochs = {plan_.samples.epoch_samples, plan_.samples.epoch_positions},
                 .rank_batch = plan_.rank_batch,
                 .numerics = {.threads = at::get_num_threads(),
                              .step = engine_.measured_step() ? engine_.measured_step()
                                                              : plan_.kept_numerics.step},
                 .run = plan_.attempt.run},
                request.client_state);
  if (best.loss) {
    request.client_state[kBestLoss] = *best.loss;
    request.client_state[kBestStep] = *best.step;
  }
  if (best.saved_step) request.client_state[kBestSaved] = *best.saved_step;
  if (evaluation_pending_) request.client_state[kPendingEvaluation] = int64_t{1};
  return request;
}

std::vector<std::string> CheckpointManager::save(int64_t step) {
  since_start_ = since_end_ = {};  // also if the save fails
  const engine::SavedCheckpoint done = engine_.save_checkpoint(directory_, request(step));
  last_saved_ = step;
  return complete_save(done);
}

void CheckpointManager::start(int64_t step) {
  since_start_ = since_end_ = {};
  engine_.start_checkpoint(directory_, request(step));
  last_saved_ = step;
  confirm_after_save_ = false;
}

std::vector<std::string> CheckpointManager::finish() {
  const auto step = std::exchange(last_saved_, std::nullopt);
  const engine::SavedCheckpoint done = engine_.finish_checkpoint();
  last_saved_ = step;
  return complete_save(done);
}

std::vector<std::string> CheckpointManager::complete_save(const engine::SavedCheckpoint& done) {
  const double seconds = since_start_.seconds();
  since_end_ = {};
  writing_seconds_ = done.writing_s;
  best_.observe_checkpoint(*last_saved_, checkpoint_directory(*last_saved_));
  unconfirmed_steps_.push_back(*last_saved_);
  const bool in_background = done.blocked_s < 0.9 * seconds;
  std::vector<std::string> messages = {fmt::format(
      "saved {} in {}{}", checkpoint_directory(*last_saved_).string(), format_duration(seconds),
      in_background
          ? fmt::format(", in the background; training waited {}", format_duration(done.blocked_s))
          : "")};
  messages.insert(messages.end(), done.warnings.begin(), done.warnings.end());
  if (std::exchange(confirm_after_save_, false)) {
    for (std::string& warning : confirm()) messages.push_back(std::move(warning));
  }
  return messages;
}

std::vector<std::string> CheckpointManager::confirm() {
  confirm_after_save_ = save_in_progress();
  if (unconfirmed_steps_.empty() || save_in_progress()) return {};
  good_steps_.insert(good_steps_.end(), unconfirmed_steps_.begin(), unconfirmed_steps_.end());
  unconfirmed_steps_.clear();
  const int64_t kept = save_total_limit();
  return kept == 0 ? std::vector<std::string>{}
                   : engine_.keep_checkpoints(directory_, kept, protected_steps());
}

std::string CheckpointManager::newest_good_note() const {
  return good_steps_.empty() ? ""
                             : fmt::format("; the newest good model is {}",
                                           checkpoint_directory(good_steps_.back()).string());
}

fs::path CheckpointManager::checkpoint_directory(int64_t step) const {
  return directory_ / checkpoint::step_name(step);
}

// Returns how many of the newest checkpoints to keep: one less if the best is not among them; 0:
// all.
int64_t CheckpointManager::save_total_limit() const {
  const int64_t kept = plan_.flags.intervals.save_total_limit.value_or(0);
  const auto best = best_.saved_step();
  if (!best || kept < 2) return kept;
  const auto newest = std::min<size_t>(good_steps_.size(), static_cast<size_t>(kept));
  const bool among = std::find(good_steps_.end() - static_cast<ptrdiff_t>(newest),
                               good_steps_.end(), *best) != good_steps_.end();
  return among ? kept : kept - 1;
}

std::set<int64_t> CheckpointManager::protected_steps() const {
  return best_.saved_step() ? std::set<int64_t>{*best_.saved_step()} : std::set<int64_t>{};
}

}  // namespace zeroth::trainer
