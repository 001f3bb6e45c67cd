#include "trainer/run_plan.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <exception>
#include <filesystem>
#include <optional>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/machine/cpu.h"
#include "configs/defaults.h"
#include "configs/resolve.h"
#include "configs/schema/check.h"
#include "data/samples/sample_file_error.h"
#include "engine/start.h"
#include "engine/step/tensor_parallel_group.h"
#include "model/blocks/build_blocks.h"
#include "model/hf/auxiliary_files.h"
#include "model/hf/model_directory.h"
#include "trainer/hf_requests.h"
#include "trainer/output.h"
#include "trainer/run_fingerprint.h"
#include "trainer/start_step.h"
#include "trainer/step_count.h"

namespace zeroth::trainer {
namespace {

constexpr int64_t kMaxDefaultLength = 1024;

// Returns the positions of a sample. A sample of N tokens has N - 1, since each token but the first
// is a target. A resumed run with version 1 of the samples uses N.
std::optional<int64_t> requested_length(const Flags& flags, int version) {
  if (flags.seq_len || !flags.max_length) return flags.seq_len;
  return *flags.max_length - (version > 1 ? 1 : 0);
}

int64_t choose_seq_len(const RunPlan& plan, configs::Diagnostics& notes) {
  const Flags& flags = plan.flags;
  const model::ModelSpec& spec = plan.spec;
  const auto requested = requested_length(flags, plan.samples.version);
  const int64_t length = requested.value_or(std::min(spec.max_positions, kMaxDefaultLength));
  if (length <= spec.max_positions) {
    if (!requested) {
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
       "--seq-len {} exceeds the {} positions of config.json: rotary embeddings are extended",
       typed, spec.max_positions);
  return length;
}

void require_samples(std::string_view flag, const std::string& path) {
  const std::string why = data::sample_file_error(path);
  if (!why.empty()) throw Error("{} {}{}", flag, path, why);
}

// Returns whether an incomplete batch at the end of an epoch is left out. resolve() finds a
// conflict between flag and file.
bool drops_last(const Flags& flags, const configs::Document& document) {
  return flags.values.drop_last.value_or(
      document.keys().get<bool>("dataloader_drop_last").value_or(false));
}

// Returns whether "log_level" in the file shows information, before the file is resolved.
bool shows_info(const configs::Document& document) {
  const auto level = document.keys().get<std::string>("log_level").value_or("info");
  return level == "info" || level == "debug";
}

// ErrorCollector runs independent actions, so that all of their errors come in one Error.
class ErrorCollector {
 public:
  template <typename Action>
  void try_run(Action action) {
    try {
      action();
    } catch (const Error& error) {
      last_ = std::current_exception();
      messages_.emplace_back(error.what());
    }
  }

  void throw_errors() const {
    if (messages_.size() == 1) std::rethrow_exception(last_);
    if (messages_.size() > 1)
      throw Error("{} errors\n  {}", messages_.size(), fmt::join(messages_, "\n  "));
  }

 private:
  std::vector<std::string> messages_;
  std::exception_ptr last_;
};

void note_unknown_keys(RunPlan& plan) {
  constexpr size_t kShown = 10;
  const std::vector<std::string>& keys = plan.spec.unknown_keys;
  if (keys.empty()) return;
  const auto end = keys.begin() + static_cast<ptrdiff_t>(std::min(keys.size(), kShown));
  note(plan.notes, "--model", "config.json has unknown keys: {}{}",
       fmt::join(keys.begin(), end, ", "),
       keys.size() > kShown ? fmt::format(" and {} more", keys.size() - kShown) : "");
}

// Adds notes about what happens to the trained model, and about files of the model's directory that
// are not copied to --output.
void note_output(RunPlan& plan) {
  if (plan.flags.eval_only) return;
  if (plan.flags.output.empty()) {
    if (!plan.trains() || plan.flags.print_config) return;
    warn(plan.notes, "--output",
         "the trained model will not be saved: --output is missing. --output DIR saves it at the "
         "end, and --save-every N saves checkpoints during the run");
    return;
  }
  for (std::string& left : model::skipped_auxiliary_files(plan.flags.model)) {
    plan.notes.push_back({.key = "--model", .text = std::move(left)});
  }
  for (std::string& warning : output_warnings(plan)) {
    plan.notes.push_back({configs::Diagnostic::Kind::kWarning, "--output", std::move(warning)});
  }
}

// Returns whether the note is about a batch or an update, which an evaluation alone does not have.
bool is_training_note(const configs::Diagnostic& note) {
  return note.kind == configs::Diagnostic::Kind::kNote &&
         (note.key == "train_micro_batch_size_per_gpu" ||
          note.key.starts_with("zero_optimization.offload_optimizer."));
}

void set_fingerprint(RunPlan& plan) {
  const bool saves = plan.saves_checkpoints() && !plan.flags.only_prints();
  if (plan.trains() && (saves || plan.resume_plan)) plan.fingerprint = compute_fingerprint(plan);
}

// Compares with the previous run: a difference is rejected or reported.
void compare_with_previous_run(RunPlan& plan) {
  if (!plan.resume_plan || !plan.trains()) return;
  const std::string differences =
      compare_fingerprints(*plan.resume_plan, plan.fingerprint, plan.flags.resume, plan.origins);
  note(plan.notes, "--resume", "resumes from {} after step {}{}{}",
       plan.resume_plan->checkpoint.string(), plan.resume_plan->step,
       differences.empty() ? "" : "; ", differences);
}

// Keeps the numeric settings: measured again, they might differ, and the bits with them.
void keep_numerics(RunPlan& plan) {
  if (!plan.resume_plan) return;
  plan.kept_numerics = numerics_to_keep(*plan.resume_plan, plan.num_ranks, describe_cpu_isa());
  auto& step = plan.config.zero.offload_optimizer.step;
  if (step != NumericSettings::Step::kAuto) plan.kept_numerics.step.reset();
  step = plan.kept_numerics.step.value_or(step);
}

struct ValidatedInputs {
  configs::Document document;
  configs::BatchConfig batch;
};

// Replaces a name on Hugging Face's hub by the directory in its cache.
void resolve_model_path(RunPlan& plan) {
  std::string& model = plan.flags.model;
  const std::string found = model::find_model_directory(model).string();
  if (found != model) note(plan.notes, "--model", "{} is {}", model, found);
  model = found;
  model::check_model_directory(model);
}

// Checks all that does not depend on the data.
ValidatedInputs validate_inputs(RunPlan& plan, int64_t world_size) {
  const Flags& flags = plan.flags;
  ValidatedInputs inputs;
  ErrorCollector errors;
  errors.try_run([&] {
    if (!flags.config.empty()) inputs.document = configs::load(flags.config);
    inputs.batch = configs::resolve_batch(inputs.document, flags.values, world_size);
  });
  errors.try_run([&] {
    resolve_model_path(plan);
    plan.spec = model::read_model_spec(flags.model);
    note_unknown_keys(plan);
    plan.samples.seq_len = choose_seq_len(plan, plan.notes);
  });
  errors.try_run([&] { check_output(plan); });
  if (!flags.data.empty()) errors.try_run([&] { require_samples("--data", flags.data); });
  if (!flags.eval_data.empty()) {
    errors.try_run([&] { require_samples("--eval-data", flags.eval_data); });
  }
  errors.throw_errors();
  return inputs;
}

// Builds the blocks of the first rank, whose part is as large as any.
model::Blocks plan_blocks(const RunPlan& plan) {
  return model::build_blocks(plan.spec, engine::fake_tensor_parallel(plan.config));
}

engine::EstimateOptions estimate_options(const RunPlan& plan) {
  return {.shape = engine::grid_shape(plan.config, plan.num_ranks),
          .device = plan.device,
          .trains = !plan.flags.eval_only,
          .saves_beside = plan.saves_async(),
          .row_elements =
              plan.samples.seq_len * plan.spec.hidden_size / plan.config.tensor_parallel.size,
          .max_rows = plan.samples.train_samples};
}

}  // namespace

bool RunPlan::saves_checkpoints() const {
  if (flags.output.empty() || flags.eval_only) return false;
  return flags.intervals.save.is_on() || flags.state.every_minutes.has_value();
}

data::BatchPartition RunPlan::train_partition(int64_t data_rank) const {
  return {.micro_batch = config.batch.micro_batch_size,
          .micro_steps = config.batch.accumulation_steps,
          .world = data_parallel_size(),
          .rank = data_rank,
          .step_samples = config.batch.train_batch_size,
          .device = device == torch::kCPU ? data::DeviceKind::kCpu : data::DeviceKind::kGpu};
}

data::BatchPartition RunPlan::eval_partition(int64_t data_rank) const {
  data::BatchPartition partition = train_partition(data_rank);
  partition.micro_steps = 1;
  partition.step_samples = 0;
  const auto by_default = configs::defaults_for(flags.values).eval_micro_batch;
  partition.micro_batch =
      flags.eval_micro_batch.value_or(by_default.value_or(partition.micro_batch));
  return partition;
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

StepTrigger RunPlan::trigger(const Interval& interval) const {
  return {interval,
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

RunPlan make_plan(Flags flags, int64_t world_size, torch::DeviceType device,
                  comm::RestartAttempt attempt, PhaseProgress* phases) {
  RunPlan plan;
  plan.attempt = std::move(attempt);
  plan.flags = std::move(flags);
  plan.num_ranks = static_cast<int>(world_size);
  plan.device = device;
  resolve_start_step(plan);
  if (plan.resume_plan) plan.samples.version = read_data_version(plan.resume_plan->fingerprint);
  const ValidatedInputs inputs = validate_inputs(plan, world_size);
  const bool drops = drops_last(plan.flags, inputs.document);
  if (!shows_info(inputs.document)) phases = nullptr;
  open_samples(plan.flags, plan.spec.vocab_size, plan.samples, plan.notes, phases);
  const auto steps = count_steps(plan, inputs.batch, drops);
  auto resolved = configs::resolve(
      inputs.document, plan.flags.values,
      {.world_size = world_size, .hidden_size = plan.spec.hidden_size, .total_steps = steps});
  plan.samples.total_steps = steps.value_or(0);
  require_steps_left(plan);
  plan.monitors = request_monitors(plan.flags, plan.resume_plan || plan.attempt.resumes, resolved);
  plan.config = resolved.config;
  plan.rank_batch = resolved.rank_batch;
  plan.origins = std::move(resolved.origins);
  for (auto& [key, origin] : plan.origins) origin = plan.flags.spellings.as_typed(origin);
  check_hf_requests(plan);
  if (plan.config.dropout) model::override_dropout(plan.spec, *plan.config.dropout);
  plan.estimate = engine::estimate_memory(plan_blocks(plan), plan.config, estimate_options(plan));
  if (plan.flags.eval_only) std::erase_if(resolved.notes, is_training_note);
  plan.notes.insert(plan.notes.begin(), resolved.notes.begin(), resolved.notes.end());
  add_dataset_notes(plan.flags, plan.samples, plan.notes);
  set_fingerprint(plan);
  compare_with_previous_run(plan);
  keep_numerics(plan);
  note_output(plan);
  plan.notes.insert(plan.notes.end(), plan.flags.notes.begin(), plan.flags.notes.end());
  for (configs::Diagnostic& note : plan.notes) {
    note.text = plan.flags.spellings.as_typed(std::move(note.text));
  }
  return plan;
}

engine::RunMemory run_memory(const RunPlan& plan, int local_ranks) {
  return engine::run_memory(plan_blocks(plan), plan.config, estimate_options(plan), local_ranks);
}

}  // namespace zeroth::trainer
