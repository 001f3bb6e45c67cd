#include "trainer/run_plan.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <exception>
#include <filesystem>
#include <optional>
#include <string_view>
#include <utility>

#include "base/cpu.h"
#include "base/error.h"
#include "configs/defaults.h"
#include "configs/resolve.h"
#include "configs/schema/check.h"
#include "data/file_kind.h"
#include "engine/start.h"
#include "engine/tensor_ranks.h"
#include "model/blocks/build.h"
#include "model/hf/companions.h"
#include "model/hf/model_folder.h"
#include "trainer/beginning.h"
#include "trainer/identity.h"
#include "trainer/output.h"
#include "trainer/step_count.h"
#include "trainer/wishes.h"

namespace zeroth::trainer {
namespace {

constexpr int64_t kMostDefaultLength = 1024;

// Positions of a sample. A sample of N tokens has N - 1: each but the first is a target. A run that
// goes on as version 1 of the samples began it takes N.
std::optional<int64_t> given_length(const Flags& flags, int version) {
  if (flags.seq_len || !flags.max_length) return flags.seq_len;
  return *flags.max_length - (version > 1 ? 1 : 0);
}

int64_t choose_seq_len(const RunPlan& plan, configs::Notes& notes) {
  const Flags& flags = plan.flags;
  const model::ModelSpec& spec = plan.spec;
  const auto given = given_length(flags, plan.samples.version);
  const int64_t length = given.value_or(std::min(spec.max_positions, kMostDefaultLength));
  if (length <= spec.max_positions) {
    if (!given) {
      note(notes, "--seq-len", "no --seq-len: {} positions", length);
    }
    return length;
  }
  const int64_t typed = flags.seq_len.value_or(flags.max_length.value_or(length));
  if (spec.learned_positions) {
    throw Error("--seq-len {}: {} holds a table of {} positions; at most that many can be used",
                typed, flags.model, spec.max_positions);
  }
  note(notes, "--seq-len",
       "--seq-len {} is beyond the {} positions that config.json "
       "names: rotary embeddings are extended",
       typed, spec.max_positions);
  return length;
}

void require_samples(std::string_view flag, const std::string& path) {
  const std::string why = data::why_no_samples(path);
  if (!why.empty()) throw Error("{} {}{}", flag, path, why);
}

// Whether a ragged batch at the end of an epoch is left out. That a flag and a file disagree is
// found by resolve().
bool drops_last(const Flags& flags, const configs::Document& document) {
  return flags.values.drop_last.value_or(
      document.keys().get<bool>("dataloader_drop_last").value_or(false));
}

// As "log_level" in the file asks, before it is resolved.
bool shows_info(const configs::Document& document) {
  const auto level = document.keys().get<std::string>("log_level").value_or("info");
  return level == "info" || level == "debug";
}

// Tries what does not depend on each other, so that everything that is wrong comes in one Error.
class Attempts {
 public:
  template <typename Action>
  void attempt(Action action) {
    try {
      action();
    } catch (const Error& error) {
      last_ = std::current_exception();
      said_.emplace_back(error.what());
    }
  }

  void throw_complaints() const {
    if (said_.size() == 1) std::rethrow_exception(last_);
    if (said_.size() > 1) throw Error("{} errors\n  {}", said_.size(), fmt::join(said_, "\n  "));
  }

 private:
  std::vector<std::string> said_;
  std::exception_ptr last_;
};

void note_unknown_keys(RunPlan& plan) {
  constexpr size_t kShown = 10;
  const std::vector<std::string>& keys = plan.spec.unknown_keys;
  if (keys.empty()) return;
  const auto end = keys.begin() + static_cast<ptrdiff_t>(std::min(keys.size(), kShown));
  note(plan.notes, "--model", "config.json has keys that nothing here knows: {}{}",
       fmt::join(keys.begin(), end, ", "),
       keys.size() > kShown ? fmt::format(" and {} more", keys.size() - kShown) : "");
}

// What becomes of the trained model, and what of the model's folder does not get into --output.
void note_output(RunPlan& plan) {
  if (plan.flags.eval_only) return;
  if (plan.flags.output.empty()) {
    if (!plan.trains() || plan.flags.print_config) return;
    warn(plan.notes, "--output",
         "the trained model will not be kept: there is no --output. --output DIR saves it at the "
         "end, and --save-every N checkpoints on the way");
    return;
  }
  for (std::string& left : model::companions_left_out(plan.flags.model)) {
    plan.notes.push_back({.key = "--model", .text = std::move(left)});
  }
  for (std::string& warning : saving_warnings(plan)) {
    plan.notes.push_back({configs::Note::Kind::kWarning, "--output", std::move(warning)});
  }
}

// What the configuration says of a batch and an update, where an evaluation alone has neither.
bool is_of_training(const configs::Note& note) {
  return note.kind == configs::Note::Kind::kNote &&
         (note.key == "train_micro_batch_size_per_gpu" ||
          note.key.starts_with("zero_optimization.offload_optimizer."));
}

void identify(RunPlan& plan) {
  const bool saves = plan.saves_checkpoints() && !plan.flags.only_prints();
  if (plan.trains() && (saves || plan.resumed)) plan.identity = identity_of(plan);
}

// What differs from the run before: refused, or told.
void compare_with_before(RunPlan& plan) {
  if (!plan.resumed || !plan.trains()) return;
  const std::string told = compare(*plan.resumed, plan.identity, plan.flags.resume, plan.origins);
  note(plan.notes, "--resume", "goes on from {} behind step {}{}{}",
       plan.resumed->checkpoint.string(), plan.resumed->step, told.empty() ? "" : "; ", told);
}

// Measured again, it might come out in another way, and with it the bits.
void keep_measured(RunPlan& plan) {
  if (!plan.resumed) return;
  plan.kept = to_keep(*plan.resumed, plan.num_ranks, cpu_level_text());
  auto& step = plan.config.zero.offload_optimizer.step;
  if (step != Measured::Step::kAuto) plan.kept.step.reset();
  step = plan.kept.step.value_or(step);
}

struct Basis {
  configs::Document document;
  configs::BatchConfig batch;
};

// From a name on Hugging Face's hub to the folder in its cache.
void find_model(RunPlan& plan) {
  std::string& model = plan.flags.model;
  const std::string found = model::find_model_folder(model).string();
  if (found != model) note(plan.notes, "--model", "{} is {}", model, found);
  model = found;
  model::check_model_folder(model);
}

// What can be checked before the data is read.
Basis check_basis(RunPlan& plan, int64_t world_size) {
  const Flags& flags = plan.flags;
  Basis basis;
  Attempts attempts;
  attempts.attempt([&] {
    if (!flags.config.empty()) basis.document = configs::load(flags.config);
    basis.batch = configs::resolve_batch(basis.document, flags.values, world_size);
  });
  attempts.attempt([&] {
    find_model(plan);
    plan.spec = model::read_model_spec(flags.model);
    note_unknown_keys(plan);
    plan.samples.seq_len = choose_seq_len(plan, plan.notes);
  });
  attempts.attempt([&] { check_output(plan); });
  if (!flags.data.empty()) attempts.attempt([&] { require_samples("--data", flags.data); });
  if (!flags.eval_data.empty()) {
    attempts.attempt([&] { require_samples("--eval-data", flags.eval_data); });
  }
  attempts.throw_complaints();
  return basis;
}

// Of the first rank, whose part is as large as any.
model::Blocks blocks_of(const RunPlan& plan) {
  return model::build_blocks(plan.spec, engine::rehearsed_tensor_ranks(plan.config));
}

engine::OutlineOptions outline_options(const RunPlan& plan) {
  return {.shape = engine::grid_shape(plan.config, plan.num_ranks),
          .device = plan.device,
          .trains = !plan.flags.eval_only,
          .saves_beside = plan.saves_beside(),
          .row_elements =
              plan.samples.seq_len * plan.spec.hidden_size / plan.config.tensor_parallel.size,
          .most_rows = plan.samples.train_samples};
}

}  // namespace

bool RunPlan::saves_checkpoints() const {
  if (flags.output.empty() || flags.eval_only) return false;
  return flags.cadences.save.is_on() || flags.state.every_minutes.has_value();
}

data::Deal RunPlan::train_deal(int64_t data_rank) const {
  return {.micro_batch = config.batch.micro_batch_size,
          .micro_steps = config.batch.accumulation_steps,
          .world = data_ranks(),
          .rank = data_rank,
          .step_samples = config.batch.train_batch_size,
          .device = device == torch::kCPU ? data::DeviceKind::kCpu : data::DeviceKind::kGpu};
}

data::Deal RunPlan::eval_deal(int64_t data_rank) const {
  data::Deal deal = train_deal(data_rank);
  deal.micro_steps = 1;
  deal.step_samples = 0;
  const auto by_default = configs::defaults_of(flags.values).eval_micro_batch;
  deal.micro_batch = flags.eval_micro_batch.value_or(by_default.value_or(deal.micro_batch));
  return deal;
}

data::SampleOrder RunPlan::sample_order() const {
  const bool gaps = samples.epoch_positions > samples.epoch_samples;
  return {samples.train_size(),
          config.seed,
          flags.shuffle,
          {.end = gaps ? data::OrderExtent::kEndless : samples.train_samples,
           .per_epoch = samples.epoch_samples,
           .positions = samples.epoch_positions}};
}

Occasions RunPlan::occasions(const Cadence& cadence) const {
  return {cadence,
          {.steps = samples.total_steps,
           .global_batch = config.batch.train_batch_size,
           .epoch_positions = samples.epoch_positions,
           .offset = offset}};
}

double RunPlan::epochs_after(int64_t step) const {
  if (samples.epoch_samples == 0) return 0;
  const auto share = [](int64_t part, int64_t whole) {
    return static_cast<double>(part) / static_cast<double>(whole);
  };
  if (!samples.whole_epochs) {
    return share(samples_after(step), samples.epoch_samples);
  }
  const int64_t micro_step = config.batch.train_batch_size / config.batch.accumulation_steps;
  const int64_t rows = ((samples.epoch_samples - 1) / micro_step + 1) * micro_step;
  const int64_t positions = positions_after(step);
  return static_cast<double>(positions / samples.epoch_positions) +
         share(std::min(positions % samples.epoch_positions, rows), rows);
}

RunPlan make_plan(Flags flags, int64_t world_size, torch::DeviceType device, comm::Round round,
                  PhaseProgress* phases) {
  RunPlan plan;
  plan.round = std::move(round);
  plan.flags = std::move(flags);
  plan.num_ranks = static_cast<int>(world_size);
  plan.device = device;
  find_beginning(plan);
  if (plan.resumed) plan.samples.version = data_version_of(plan.resumed->identity);
  const Basis basis = check_basis(plan, world_size);
  const bool drops = drops_last(plan.flags, basis.document);
  if (!shows_info(basis.document)) phases = nullptr;
  open_samples(plan.flags, plan.spec.vocab_size, plan.samples, plan.notes, phases);
  const auto steps = count_steps(plan, basis.batch, drops);
  auto resolved = configs::resolve(
      basis.document, plan.flags.values,
      {.world_size = world_size, .hidden_size = plan.spec.hidden_size, .total_steps = steps});
  plan.samples.total_steps = steps.value_or(0);
  require_steps_left(plan);
  plan.monitors = ask_monitors(plan.flags, plan.resumed || plan.round.goes_on, resolved);
  plan.config = resolved.config;
  plan.rank_batch = resolved.rank_batch;
  plan.origins = std::move(resolved.origins);
  for (auto& [key, origin] : plan.origins) origin = plan.flags.spellings.as_typed(origin);
  check_wishes(plan);
  if (plan.config.dropout) model::override_dropout(plan.spec, *plan.config.dropout);
  plan.outline = engine::outline(blocks_of(plan), plan.config, outline_options(plan));
  if (plan.flags.eval_only) std::erase_if(resolved.notes, is_of_training);
  plan.notes.insert(plan.notes.begin(), resolved.notes.begin(), resolved.notes.end());
  tell_of_samples(plan.flags, plan.samples, plan.notes);
  identify(plan);
  compare_with_before(plan);
  keep_measured(plan);
  note_output(plan);
  plan.notes.insert(plan.notes.end(), plan.flags.notes.begin(), plan.flags.notes.end());
  for (configs::Note& note : plan.notes) {
    note.text = plan.flags.spellings.as_typed(std::move(note.text));
  }
  return plan;
}

engine::RunMemory run_memory(const RunPlan& plan, int here) {
  return engine::run_memory(blocks_of(plan), plan.config, outline_options(plan), here);
}

}  // namespace zeroth::trainer
