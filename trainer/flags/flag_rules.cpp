#include "trainer/flags/flag_rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <climits>
#include <cmath>
#include <string_view>
#include <utility>

#include "base/text/printable.h"
#include "base/text/units.h"
#include "data/records/data_files.h"

namespace zeroth::trainer {
namespace {

using Errors = std::vector<std::string>;

void resolve_config(RawFlags& raw, Errors& errors) {
  // DeepSpeed's own scripts write `--deepspeed --deepspeed_config FILE`, Hugging Face's
  // `--deepspeed FILE`.
  const std::string file = raw.deepspeed.empty() ? "" : raw.deepspeed.front();
  if (!file.empty() && !raw.deepspeed_config.empty()) {
    errors.push_back(fmt::format("--deepspeed {} and --deepspeed_config {}: give one of them",
                                 shortened(file), shortened(raw.deepspeed_config)));
  } else if (!raw.deepspeed.empty() && file.empty() && raw.deepspeed_config.empty()) {
    errors.push_back("--deepspeed needs the name of a configuration file");
  }
  raw.flags.config = file.empty() ? raw.deepspeed_config : file;
}

void resolve_precision(RawFlags& raw, Errors& errors) {
  if (raw.bf16 + raw.fp16 + raw.fp32 > 1) {
    errors.push_back("--bf16, --fp16 and --fp32 exclude each other: give one of them");
  }
  auto& precision = raw.flags.values.precision;
  if (raw.bf16) precision = configs::Precision::kBf16;
  if (raw.fp16) precision = configs::Precision::kFp16;
  if (raw.fp32) precision = configs::Precision::kFp32;
}

void resolve_recompute(RawFlags& raw, Errors& errors) {
  for (const std::string& text : raw.gradient_checkpointing) {
    const int64_t every = text == "true" ? 1 : parse_number<int64_t>(text).value_or(0);
    if (every < 1) {
      errors.push_back(fmt::format("--gradient-checkpointing={}: must be a whole number above 0",
                                   shortened(text)));
    }
    raw.flags.values.gradient_checkpointing = every;
  }
}

void resolve_seed(RawFlags& raw, Errors& errors) {
  if (!raw.seed) return;
  if (*raw.seed < 0) errors.push_back(fmt::format("--seed {}: must be at least 0", *raw.seed));
  raw.flags.values.seed = static_cast<uint64_t>(*raw.seed);
}

void resolve_choices(RawFlags& raw, Errors& errors) {
  using configs::LossMean, configs::OnNonFinite;
  auto& values = raw.flags.values;
  values.loss_mean = parse_choice<LossMean>(
      "--loss-mean", raw.loss_mean,
      {{"token", LossMean::kToken}, {"micro-batch", LossMean::kMicroBatch}}, errors);
  values.on_non_finite = parse_choice<OnNonFinite>(
      "--on-non-finite", raw.on_non_finite,
      {{"skip", OnNonFinite::kSkip}, {"fail", OnNonFinite::kFail}}, errors);
  raw.flags.save_dtype = parse_choice<c10::ScalarType>(
      "--save-dtype", raw.save_dtype,
      {{"fp32", c10::kFloat}, {"bf16", c10::kBFloat16}, {"fp16", c10::kHalf}}, errors);
  if (raw.no_decay) values.no_decay = true;
  if (raw.drop_last) values.drop_last = true;
}

// Returns the names in words such as "q_proj,v_proj". A comma inside brackets belongs to a regular
// expression: "layers[.][0-9]{1,2}[.].*".
std::vector<std::string> split_names(const std::vector<std::string>& words) {
  std::vector<std::string> names;
  for (const std::string& word : words) {
    int depth = 0;
    names.emplace_back();
    for (const char c : word) {
      if (std::string_view("([{").find(c) != std::string_view::npos) ++depth;
      if (std::string_view(")]}").find(c) != std::string_view::npos) --depth;
      if (c == ',' && depth <= 0) {
        names.emplace_back();
      } else {
        names.back() += c;
      }
    }
  }
  std::erase(names, "");
  return names;
}

// Fills the flags about adapters. The values of an adapter to continue are those in its folder.
void resolve_adapter(RawFlags& raw) {
  auto& values = raw.flags.values;
  values.lora_target_modules = split_names(raw.lora_target_modules);
  values.lora_modules_to_save = split_names(raw.lora_modules_to_save);
  if (!raw.flags.adapter.empty()) values.use_peft = true;
}

void resolve_schedule(RawFlags& raw, Errors& errors) {
  auto& values = raw.flags.values;
  if (raw.lr_scheduler_type == "greedy") {
    errors.push_back(
        "--lr_scheduler_type greedy: not supported: it raises and lowers the rate by evaluation "
        "losses; reduce_lr_on_plateau, which only lowers it, is supported");
  } else {
    values.schedule = parse_choice<configs::HfSchedule::Type>(
        "--lr_scheduler_type", raw.lr_scheduler_type,
        {configs::kHfScheduleNames.begin(), configs::kHfScheduleNames.end()}, errors);
  }
  if (values.schedule == configs::HfSchedule::Type::kReduceOnPlateau &&
      !raw.flags.intervals.evaluate.is_on() && !raw.flags.eval_only) {
    errors.push_back(
        "--lr_scheduler_type reduce_lr_on_plateau needs --eval_strategy steps or epoch: it follows "
        "the loss of evaluations");
  }
  if (values.schedule == configs::HfSchedule::Type::kReduceOnPlateau) {
    raw.flags.intervals.tracks_best = true;  // as in Trainer
  }
}

// Treats a value below 1 as a fraction of the run, as transformers 5 does; in version 4 a ratio
// beside it counted only if the number of steps is 0.
void resolve_warmup(RawFlags& raw, Errors& errors) {
  auto& values = raw.flags.values;
  if (!raw.warmup_steps) return;
  const double steps = *raw.warmup_steps;
  if (steps == 0 && values.warmup_ratio) return;
  if (values.warmup_ratio && values.for_trainer) {
    note(raw.flags.notes, "--warmup-ratio", "--warmup-ratio {}: no effect with --warmup-steps {}",
         *values.warmup_ratio, steps);
    values.warmup_ratio.reset();
  }
  if (steps > static_cast<double>(kMaxSteps)) {
    errors.push_back(fmt::format("--warmup-steps {}: must be at most {}", steps, kMaxSteps));
  } else if (steps > 0 && steps < 1 && !values.warmup_ratio) {
    values.warmup_ratio = steps;
  } else if (steps != std::floor(steps)) {
    errors.push_back(fmt::format(
        "--warmup-steps {}: must be a whole number of steps, or below 1 as a fraction of all steps",
        steps));
  } else {
    values.warmup_steps = static_cast<int64_t>(steps);
  }
}

void resolve_resume(RawFlags& raw, Errors& errors) {
  using From = ResumeFlags::From;
  ResumeFlags& resume = raw.flags.resume;
  if (raw.save_failures) {
    raw.flags.state.max_save_failures = *raw.save_failures;
    if (*raw.save_failures < 1) {
      errors.push_back(fmt::format("--save-failures {}: must be at least 1", *raw.save_failures));
    }
  }
  if (raw.resume.empty()) {
    if (resume.allow_batch_change) errors.push_back("--allow-batch-change needs --resume");
    if (!resume.may_change.empty()) errors.push_back("--allow-change needs --resume");
    return;
  }
  const std::string& from = raw.resume.front();
  if (from.starts_with("--")) return;  // another flag is in its place, which is reported
  // Hugging Face accepts "true" for the newest checkpoint.
  resume.from = from.empty() || from == "true" || from == "True" ? From::kNewest
                : from == "auto"                                 ? From::kNewestOrNothing
                                                                 : From::kNamed;
  if (resume.from == From::kNamed) resume.directory = from;
  if (raw.flags.eval_only) errors.push_back("--eval-only trains nothing: leave --resume out");
  if (resume.from != From::kNamed && raw.flags.output.empty()) {
    errors.push_back("--resume needs --output to resume from its newest checkpoint, or a folder");
  }
}

template <typename T>
void require_positive(const char* name, const std::optional<T>& value, Errors& errors) {
  if (value && !(*value > 0 && std::isfinite(static_cast<double>(*value)))) {
    errors.push_back(fmt::format("{} {}: must be above 0", name, *value));
  }
}

void check_numbers(const Flags& flags, Errors& errors) {
  require_positive("--steps", flags.steps, errors);
  require_positive("--epochs", flags.epochs, errors);
  require_positive("--seq-len", flags.seq_len, errors);
  if (flags.max_length && *flags.max_length < 2) {
    errors.push_back(fmt::format(
        "--max-length {}: must be at least 2, the first token is not a target", *flags.max_length));
  }
  if (flags.seq_len && flags.max_length && *flags.seq_len + 1 != *flags.max_length) {
    errors.push_back(
        fmt::format("--seq-len {} and --max-length {} differ: give one of them; a sample of {} "
                    "tokens has {} positions",
                    *flags.seq_len, *flags.max_length, *flags.max_length, *flags.max_length - 1));
  }
  if (flags.inspect_samples.value_or(0) < 0) {
    errors.push_back(
        fmt::format("--inspect-samples {}: must be at least 0", *flags.inspect_samples));
  }
  require_positive("--max_train_samples", flags.max_train_samples, errors);
  require_positive("--max-eval-samples", flags.max_eval_samples, errors);
  require_positive("--eval-micro-batch", flags.eval_micro_batch, errors);
  require_positive("--timeout", flags.timeout_s, errors);
  require_positive("--grace", flags.state.grace_s, errors);
}

// Rejects paths that no file can have, so that they appear in no later message.
void check_lengths(const Flags& flags, Errors& errors) {
  const auto check = [&](const char* name, const std::string& path) {
    if (path.size() < PATH_MAX) return;
    errors.push_back(
        fmt::format("{} {}: a path has at most {} bytes", name, shortened(path), PATH_MAX - 1));
  };
  check("--model", flags.model);
  check("--adapter", flags.adapter);
  for (const std::string& path : flags.data) check("--data", path);
  for (const std::string& path : flags.eval_data) check("--eval-data", path);
  check("--metrics", flags.metrics);
  check("--output", flags.output);
}

void check_files(const Flags& flags, Errors& errors) {
  if (flags.model.empty()) errors.push_back("--model is missing: a Hugging Face model folder");
  const bool has_data = !flags.data.empty() || (flags.eval_only && !flags.eval_data.empty());
  if (flags.merge && (flags.adapter.empty() || flags.output.empty()))
    errors.push_back(
        "--merge needs --adapter and --output: folders of an adapter and of its result");
  if (!has_data && !flags.print_config && !flags.merge) {
    errors.push_back("--data is missing: a .jsonl, .json, .csv, .parquet, .txt or .bin file");
  }
  if (flags.records.prompt_field.empty() != flags.records.completion_field.empty()) {
    errors.push_back("--prompt-field and --completion-field must be given together");
  }
  const bool has_no_pairs = std::ranges::none_of(flags.data, data::may_have_records) &&
                            std::ranges::none_of(flags.eval_data, data::may_have_records);
  if (flags.records.separator && !flags.records.separator->empty() && has_no_pairs) {
    errors.push_back("--separator needs prompt and completion of .jsonl or .json data");
  }
  const auto needs_output = [&](const char* name, bool given) {
    if (given && flags.output.empty()) errors.push_back(fmt::format("{} needs --output", name));
  };
  needs_output("--overwrite", flags.overwrite);
  needs_output("--trace-steps", flags.trace_steps.has_value());
  needs_output("--save-dtype", flags.save_dtype.has_value());
}

void check_evaluation(const RawFlags& raw, Errors& errors) {
  const Flags& flags = raw.flags;
  const auto excludes = [&](const char* name, bool given) {
    if (flags.eval_only && given) {
      errors.push_back(fmt::format("--eval-only trains nothing: leave {} out", name));
    }
  };
  excludes("--steps", flags.steps.has_value());
  excludes("--epochs", flags.epochs.has_value());
  excludes("--eval-every", raw.intervals.eval_every.has_value());
  excludes("--trace-steps", flags.trace_steps.has_value());
  excludes("--save-every", raw.intervals.save_every.has_value());
  if (flags.max_eval_samples && !flags.eval_only && !flags.has_eval_data()) {
    errors.push_back("--max-eval-samples needs --eval-data or --eval-only");
  }
}

// Does what a script with --do_train and --do_eval does: flags about a task that is off are
// ignored.
void resolve_tasks(RawFlags& raw, Errors& errors) {
  Flags& flags = raw.flags;
  const bool evaluates = raw.do_eval.value_or(false);
  if (raw.do_train == false) {
    if (raw.do_eval == false)
      errors.push_back("--do_train False and --do_eval False: nothing to do");
    flags.eval_only = true;
    flags.steps.reset();
    flags.epochs.reset();
    raw.intervals = {};
  }
  if (evaluates && !flags.has_eval_data()) {
    errors.push_back("--do_eval needs --eval-data (--validation_file), or --val-split of --data");
  }
  const std::string& strategy = raw.intervals.eval_strategy;
  const bool steps =
      raw.intervals.eval_every && !flags.spellings.is_typed_as("--eval-every", "eval_steps");
  const bool evaluates_periodically = steps || !(strategy.empty() || strategy == "no");
  if (raw.do_eval != false || evaluates_periodically || flags.eval_data.empty()) return;
  note(flags.notes, "--eval-data", "--eval-data is not read: --do_eval False");
  flags.eval_data.clear();
}

// Prefers --max_steps if both are given, as Trainer does.
void resolve_length(Flags& flags, Errors& errors) {
  if (!flags.steps || !flags.epochs) return;
  if (!flags.spellings.is_typed_as("--steps", "max_steps")) {
    errors.push_back("--steps and --epochs exclude each other: give one of them");
    return;
  }
  note(flags.notes, "--epochs", "--epochs {}: no effect with --steps {}", *flags.epochs,
       *flags.steps);
  flags.epochs.reset();
}

// Services that transformers knows in addition to TensorBoard.
constexpr std::array<std::string_view, 14> kServices = {
    "azure_ml", "clearml", "codecarbon", "comet_ml", "dagshub", "dvclive", "flyte",
    "kubeflow", "mlflow",  "neptune",    "swanlab",  "trackio", "wandb",   "comet"};

// Fills flags.report_to.
void resolve_report_to(RawFlags& raw, Errors& errors) {
  ReportTo& report = raw.flags.report_to;
  report.directory = raw.logging_dir;
  for (const std::string& name : raw.report_to) {
    if (name == "none") continue;
    const bool service = std::find(kServices.begin(), kServices.end(), name) != kServices.end();
    if (!service && name != "all" && name != "tensorboard") {
      if (!name.starts_with("--")) {
        errors.push_back(
            fmt::format("--report_to {}: must be all, none, tensorboard or the name of a service",
                        shortened(name)));
      }
      continue;
    }
    report.tensorboard = true;
    if (name != "tensorboard") report.csv = true;
    if (service) report.services.push_back(name);
  }
}

}  // namespace

Flags resolve_flags(RawFlags raw, Errors& errors) {
  resolve_config(raw, errors);
  resolve_precision(raw, errors);
  resolve_recompute(raw, errors);
  resolve_seed(raw, errors);
  resolve_choices(raw, errors);
  resolve_adapter(raw);
  resolve_data(raw, errors);
  raw.flags.shuffle = !raw.no_shuffle;
  if (!raw.betas.empty()) raw.flags.values.betas = {raw.betas.at(0), raw.betas.at(1)};
  resolve_tasks(raw, errors);
  resolve_length(raw.flags, errors);
  resolve_intervals(raw.intervals, raw.flags, errors);
  resolve_resume(raw, errors);
  resolve_schedule(raw, errors);
  resolve_warmup(raw, errors);
  resolve_report_to(raw, errors);
  check_numbers(raw.flags, errors);
  check_lengths(raw.flags, errors);
  check_files(raw.flags, errors);
  check_evaluation(raw, errors);
  if (raw.flags.eval_only && !raw.flags.eval_data.empty() && !raw.flags.data.empty()) {
    note(raw.flags.notes, "--data",
         "--data is not read: --eval-data is evaluated, and nothing trained");
  }
  return std::move(raw.flags);
}

}  // namespace zeroth::trainer
