#include "trainer/run_plan.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <exception>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/machine/cpu.h"
#include "configs/resolve.h"
#include "configs/schema/check.h"
#include "data/samples/dataset.h"
#include "model/hf/adapter_files.h"
#include "model/hf/auxiliary_files.h"
#include "model/hf/checkpoint_source.h"
#include "model/hf/model_directory.h"
#include "trainer/output.h"
#include "trainer/run_adapter.h"
#include "trainer/run_memory.h"
#include "trainer/step_trigger.h"

namespace zeroth::trainer {
namespace {

constexpr int64_t kMaxDefaultLength = 1024;

// Returns the positions of a sample. A sample of --max-length N tokens has N - 1, since each token
// but the first is a target. A resumed run with version 1 of the samples uses N.
int64_t choose_seq_len(const Flags& flags, const model::ModelSpec& spec, int version,
                       configs::Diagnostics& notes) {
  std::optional<int64_t> requested = flags.seq_len;
  if (!requested && flags.max_length) requested = *flags.max_length - (version > 1 ? 1 : 0);
  const int64_t length = requested.value_or(std::min(spec.max_positions, kMaxDefaultLength));
  if (length <= spec.max_positions) {
    if (!requested) note(notes, "--seq-len", "no --seq-len: {} positions", length);
    return length;
  }
  const int64_t typed = flags.seq_len.value_or(flags.max_length.value_or(length));
  if (spec.learned_positions) {
    throw Error("--seq-len {}: {} holds a table of {} positions; at most that many can be used",
                typed, flags.model, spec.max_positions);
  }
  note(notes, "--seq-len", "--seq-len {} exceeds the {} positions of config.json: {}", typed,
       spec.max_positions,
       spec.alibi_slopes.empty() ? "rotary embeddings are extended" : "ALiBi has no limit");
  return length;
}

void require_adapter(const std::string& directory) {
  if (directory.empty() || model::has_adapter(directory)) return;
  throw Error(
      "--adapter {}: there is no adapter_config.json: give the directory of an adapter that "
      "finetune or peft has saved; --use_peft trains a new one",
      directory);
}

void require_samples(std::string_view flag, const std::vector<std::string>& values) {
  for (const DataPart& part : find_data(flag, values)) {
    for (const auto& path : part.files) {
      const std::string why = data::sample_file_error(path);
      if (!why.empty()) throw Error("{} {}{}", flag, path.string(), why);
    }
  }
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

void note_unknown_keys(const std::vector<std::string>& keys, configs::Diagnostics& notes) {
  constexpr size_t kShown = 10;
  if (keys.empty()) return;
  const auto end = keys.begin() + static_cast<ptrdiff_t>(std::min(keys.size(), kShown));
  note(notes, "--model", "config.json has unknown keys: {}{}", fmt::join(keys.begin(), end, ", "),
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
  for (const std::string& left : model::skipped_auxiliary_files(plan.flags.model)) {
    note(plan.notes, "--model", "{}", left);
  }
  add_output_warnings(plan, plan.notes);
}

// Returns whether the note is about a batch or an update, which an evaluation alone does not have.
bool is_training_note(const configs::Diagnostic& note) {
  return note.kind == configs::Diagnostic::Kind::kNote &&
         (note.key == "train_micro_batch_size_per_gpu" ||
          note.key.starts_with("zero_optimization.offload_optimizer."));
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

// Replaces a name on Hugging Face's hub by the directory in its cache.
void resolve_model_path(std::string& model, configs::Diagnostics& notes) {
  const std::string found = model::find_model_directory(model).string();
  if (found != model) note(notes, "--model", "{} is {}", model, found);
  model = found;
  model::check_model_directory(model);
}

// The stages between a StartPoint and a ResolvedRun.

// Inputs that are checked as far as that is possible without the data.
struct CheckedInputs : StartPoint {
  configs::Document document = {};
  configs::BatchConfig batch = {};
  model::ModelSpec spec = {};
  DatasetFacts facts = {};
};

CheckedInputs check_inputs(StartPoint start, int64_t world_size) {
  CheckedInputs inputs{std::move(start)};
  Flags& flags = inputs.flags;
  if (inputs.resume_plan) {
    inputs.facts.version = read_data_version(inputs.resume_plan->fingerprint);
  }
  // Independent actions run although one of them fails, so that all errors come in one Error.
  std::vector<std::string> errors;
  std::exception_ptr last_error;
  const auto try_run = [&](auto action) {
    try {
      action();
    } catch (const Error& error) {
      last_error = std::current_exception();
      errors.emplace_back(error.what());
    }
  };
  try_run([&] {
    if (!flags.config.empty()) inputs.document = configs::load(flags.config);
    inputs.batch = configs::resolve_batch(inputs.document, flags.values, world_size);
  });
  try_run([&] {
    flags.model_name = flags.model;
    resolve_model_path(flags.model, inputs.notes);
    inputs.spec = model::read_model_spec(flags.model);
    note_unknown_keys(inputs.spec.unknown_keys, inputs.notes);
    for (const std::string& line : model::untrained_tensors(flags.model, inputs.spec))
      note(inputs.notes, "--model", "{}", line);
    if (inputs.spec.score_softcap > 0)
      note(inputs.notes, "--model",
           "attn_logit_softcapping is applied to all scores, as transformers does with "
           "attn_implementation \"eager\"; its default, \"sdpa\", leaves it out");
    inputs.facts.vocab_size = inputs.spec.vocab_size;
    inputs.facts.seq_len = choose_seq_len(flags, inputs.spec, inputs.facts.version, inputs.notes);
  });
  try_run([&] { check_output(inputs); });
  try_run([&] { require_adapter(flags.adapter); });
  try_run([&] { require_samples("--data", flags.data); });
  try_run([&] { require_samples("--eval-data", flags.eval_data); });
  if (errors.size() == 1) std::rethrow_exception(last_error);
  if (!errors.empty()) throw Error("{} errors\n  {}", errors.size(), fmt::join(errors, "\n  "));
  return inputs;
}

Samples open_samples(CheckedInputs& inputs, PhaseProgress* phases) {
  const bool drops = drops_last(inputs.flags, inputs.document);
  if (!shows_info(inputs.document)) phases = nullptr;
  Datasets datasets = open_datasets(inputs.flags, inputs.facts, inputs.notes, phases);
  return count_steps(std::move(datasets), inputs, inputs.batch, drops, inputs.notes);
}

// Throws an Error if the model's loss needs what a pipeline cannot give in time.
void check_experts(const ResolvedRun& run) {
  if (!run.config.pipeline.is_on() || !run.spec.experts) return;
  if (run.spec.experts->aux_loss_coef == 0 || run.flags.eval_only) return;
  throw Error(
      "config.json has output_router_logits, but the load balancing loss that it asks for needs "
      "the loads of the experts of all {} stages of the pipeline before one of them runs backward: "
      "set pipeline.stages (--pipeline-parallel) to 1, or output_router_logits to false",
      run.config.pipeline.stages);
}

ResolvedRun resolve_run(CheckedInputs inputs, Samples samples, int64_t world_size,
                        torch::DeviceType device) {
  const int64_t steps = samples.total_steps;
  configs::Resolved resolved =
      configs::resolve(inputs.document, inputs.flags.values,
                       {.world_size = world_size,
                        .hidden_size = inputs.spec.hidden_size,
                        .total_steps = steps > 0 ? std::optional(steps) : std::nullopt});
  if (samples.train) require_steps_left(inputs, steps);
  const bool resumes = inputs.resume_plan || inputs.attempt.resumes;
  ResolvedRun run{StartPoint(std::move(inputs))};
  run.num_ranks = static_cast<int>(world_size);
  run.device = device;
  run.spec = std::move(inputs.spec);
  run.samples = std::move(samples);
  run.monitors = request_monitors(run.flags, resumes, resolved);
  run.config = std::move(resolved.config);
  run.origins = std::move(resolved.origins);
  run.rank_batch = resolved.rank_batch;
  for (auto& [key, origin] : run.origins) origin = run.flags.spellings.as_typed(origin);
  check_hf_requests(run);
  check_experts(run);
  if (run.config.dropout) model::override_dropout(run.spec, *run.config.dropout);
  resolve_quantization(run);
  resolve_adapter(run);
  run.estimate = estimate_memory(run);
  if (run.flags.eval_only) std::erase_if(resolved.notes, is_training_note);
  run.notes.insert(run.notes.begin(), resolved.notes.begin(), resolved.notes.end());
  add_dataset_notes(run.flags, run.samples, run.notes);
  return run;
}

RunPlan complete_plan(ResolvedRun run) {
  RunPlan plan{std::move(run)};
  const bool saves = plan.saves_checkpoints() && !plan.flags.only_prints();
  if (plan.trains() && (saves || plan.resume_plan)) plan.fingerprint = compute_fingerprint(plan);
  compare_with_previous_run(plan);
  keep_numerics(plan);
  note_output(plan);
  plan.notes.insert(plan.notes.end(), plan.flags.notes.begin(), plan.flags.notes.end());
  for (configs::Diagnostic& note : plan.notes) {
    note.text = plan.flags.spellings.as_typed(std::move(note.text));
  }
  return plan;
}

}  // namespace

bool ResolvedRun::saves_checkpoints() const {
  if (flags.output.empty() || flags.eval_only) return false;
  return flags.intervals.save.is_on() || flags.state.every_minutes.has_value();
}

data::BatchPartition ResolvedRun::train_partition(int64_t data_rank) const {
  return {.micro_batch = config.batch.micro_batch_size,
          .micro_steps = config.batch.accumulation_steps,
          .world = data_parallel_size(),
          .rank = data_rank,
          .step_samples = global_batch(),
          .device = device == torch::kCPU ? data::DeviceKind::kCpu : data::DeviceKind::kGpu};
}

data::BatchPartition ResolvedRun::eval_partition(int64_t data_rank) const {
  data::BatchPartition partition = train_partition(data_rank);
  partition.micro_steps = 1;
  partition.step_samples = 0;
  const auto by_default = configs::defaults_for(flags.values).eval_micro_batch;
  partition.micro_batch =
      flags.eval_micro_batch.value_or(by_default.value_or(partition.micro_batch));
  return partition;
}

data::SampleOrder ResolvedRun::sample_order() const {
  constexpr int64_t kGroupedBatches = 50;  // as in transformers
  const bool gaps = samples.epoch_positions > samples.epoch_samples;
  return {
      samples.train->size(),
      config.seed,
      flags.shuffle,
      {.end = gaps ? data::OrderExtent::kEndless : samples.train_samples,
       .per_epoch = samples.epoch_samples,
       .positions = samples.epoch_positions},
      samples.mixture,
      {.positions = flags.group_by_length ? kGroupedBatches * global_batch() : 0,
       .length = [&samples = *samples.train](int64_t sample) { return samples.length(sample); }}};
}

StepTrigger ResolvedRun::trigger(const Interval& interval) const {
  return {interval,
          {.steps = samples.total_steps,
           .global_batch = global_batch(),
           .epoch_positions = samples.epoch_positions,
           .offset = samples.offset}};
}

double ResolvedRun::epochs_after(int64_t step) const {
  if (samples.epoch_samples == 0) return 0;
  const auto share = [](int64_t part, int64_t whole) {
    return static_cast<double>(part) / static_cast<double>(whole);
  };
  if (!samples.whole_epochs) {
    return share(samples_after(step), samples.epoch_samples);
  }
  const int64_t micro_step = config.batch.micro_step_samples();
  const int64_t rows = ((samples.epoch_samples - 1) / micro_step + 1) * micro_step;
  const int64_t positions = positions_after(step);
  return static_cast<double>(positions / samples.epoch_positions) +
         share(std::min(positions % samples.epoch_positions, rows), rows);
}

std::string tokenize_data(Flags flags, PhaseProgress* phases) {
  resolve_model_path(flags.model, flags.notes);
  const model::ModelSpec spec = model::read_model_spec(flags.model);
  require_samples("--data", flags.data);
  return tokenize(flags, {.vocab_size = spec.vocab_size, .seq_len = 1}, phases);
}

RunPlan make_plan(Flags flags, int64_t world_size, torch::DeviceType device, RestartAttempt attempt,
                  PhaseProgress* phases) {
  StartPoint start = resolve_start_point(std::move(flags), std::move(attempt));
  CheckedInputs checked = check_inputs(std::move(start), world_size);
  Samples samples = open_samples(checked, phases);
  return complete_plan(resolve_run(std::move(checked), std::move(samples), world_size, device));
}

}  // namespace zeroth::trainer
