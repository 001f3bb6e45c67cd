#include "trainer/flags/flag_rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <climits>
#include <cmath>
#include <string_view>
#include <utility>

#include "base/printable.h"
#include "base/units.h"
#include "trainer/flags/choice.h"

namespace zeroth::trainer {
namespace {

using Complaints = std::vector<std::string>;

void settle_config(RawFlags& raw, Complaints& complaints) {
  // DeepSpeed's own scripts write `--deepspeed --deepspeed_config FILE`, Hugging Face's
  // `--deepspeed FILE`.
  const std::string file = raw.deepspeed.empty() ? "" : raw.deepspeed.front();
  if (!file.empty() && !raw.deepspeed_config.empty()) {
    complaints.push_back(fmt::format("--deepspeed {} and --deepspeed_config {}: give one of them",
                                     shortened(file), shortened(raw.deepspeed_config)));
  } else if (!raw.deepspeed.empty() && file.empty() && raw.deepspeed_config.empty()) {
    complaints.push_back("--deepspeed needs the name of a configuration file");
  }
  raw.flags.config = file.empty() ? raw.deepspeed_config : file;
}

void settle_precision(RawFlags& raw, Complaints& complaints) {
  if (raw.bf16 + raw.fp16 + raw.fp32 > 1) {
    complaints.push_back("--bf16, --fp16 and --fp32 exclude each other: give one of them");
  }
  auto& precision = raw.flags.values.precision;
  if (raw.bf16) precision = configs::Precision::kBf16;
  if (raw.fp16) precision = configs::Precision::kFp16;
  if (raw.fp32) precision = configs::Precision::kFp32;
}

void settle_recompute(RawFlags& raw, Complaints& complaints) {
  for (const std::string& text : raw.gradient_checkpointing) {
    const int64_t every = text == "true" ? 1 : parse_number<int64_t>(text).value_or(0);
    if (every < 1) {
      complaints.push_back(fmt::format(
          "--gradient-checkpointing={}: must be a whole number above 0", shortened(text)));
    }
    raw.flags.values.gradient_checkpointing = every;
  }
}

void settle_seed(RawFlags& raw, Complaints& complaints) {
  if (!raw.seed) return;
  if (*raw.seed < 0) complaints.push_back(fmt::format("--seed {}: must be at least 0", *raw.seed));
  raw.flags.values.seed = static_cast<uint64_t>(*raw.seed);
}

void settle_choices(RawFlags& raw, Complaints& complaints) {
  using configs::LossMean, configs::OnNonFinite;
  auto& values = raw.flags.values;
  values.loss_mean = choose<LossMean>(
      "--loss-mean", raw.loss_mean,
      {{"token", LossMean::kToken}, {"micro-batch", LossMean::kMicroBatch}}, complaints);
  values.on_non_finite =
      choose<OnNonFinite>("--on-non-finite", raw.on_non_finite,
                          {{"skip", OnNonFinite::kSkip}, {"fail", OnNonFinite::kFail}}, complaints);
  raw.flags.save_dtype = choose<c10::ScalarType>(
      "--save-dtype", raw.save_dtype,
      {{"fp32", c10::kFloat}, {"bf16", c10::kBFloat16}, {"fp16", c10::kHalf}}, complaints);
  if (raw.no_decay) values.no_decay = true;
  if (raw.drop_last) values.drop_last = true;
}

void settle_schedule(RawFlags& raw, Complaints& complaints) {
  auto& values = raw.flags.values;
  if (raw.lr_scheduler_type == "greedy") {
    complaints.push_back(
        "--lr_scheduler_type greedy: refused: it raises and lowers the rate by the losses of "
        "evaluations; reduce_lr_on_plateau, which only lowers it, is there");
  } else {
    values.schedule = choose<configs::HfSchedule::Type>(
        "--lr_scheduler_type", raw.lr_scheduler_type,
        {configs::kHfScheduleNames.begin(), configs::kHfScheduleNames.end()}, complaints);
  }
  if (values.schedule == configs::HfSchedule::Type::kReduceOnPlateau &&
      !raw.flags.cadences.evaluate.is_on() && !raw.flags.eval_only) {
    complaints.push_back(
        "--lr_scheduler_type reduce_lr_on_plateau needs --eval_strategy steps or epoch: it follows "
        "the loss of evaluations");
  }
  if (values.schedule == configs::HfSchedule::Type::kReduceOnPlateau) {
    raw.flags.cadences.tracks_best = true;  // as in Trainer
  }
}

// Below 1 it is a part of the run, as in transformers 5; in 4 a ratio beside it counted only where
// it is 0.
void settle_warmup(RawFlags& raw, Complaints& complaints) {
  auto& values = raw.flags.values;
  if (!raw.warmup_steps) return;
  const double steps = *raw.warmup_steps;
  if (steps == 0 && values.warmup_ratio) return;
  if (values.warmup_ratio && values.for_trainer) {
    note(raw.flags.notes, "--warmup-ratio", "--warmup-ratio {}: no effect beside --warmup-steps {}",
         *values.warmup_ratio, steps);
    values.warmup_ratio.reset();
  }
  if (steps > static_cast<double>(kMostSteps)) {
    complaints.push_back(fmt::format("--warmup-steps {}: must be at most {}", steps, kMostSteps));
  } else if (steps > 0 && steps < 1 && !values.warmup_ratio) {
    values.warmup_ratio = steps;
  } else if (steps != std::floor(steps)) {
    complaints.push_back(fmt::format(
        "--warmup-steps {}: must be a whole number of steps, or below 1 as a part of all steps",
        steps));
  } else {
    values.warmup_steps = static_cast<int64_t>(steps);
  }
}

// "true" is Hugging Face's.
bool is_true_word(const std::string& text) {
  return text == "true" || text == "True";
}

void settle_resume(RawFlags& raw, Complaints& complaints) {
  using From = ResumeFlags::From;
  ResumeFlags& resume = raw.flags.resume;
  if (raw.save_failures) {
    raw.flags.state.most_failures = *raw.save_failures;
    if (*raw.save_failures < 1) {
      complaints.push_back(
          fmt::format("--save-failures {}: must be at least 1", *raw.save_failures));
    }
  }
  if (raw.resume.empty()) {
    if (resume.batch_may_change) complaints.push_back("--allow-batch-change needs --resume");
    if (!resume.may_change.empty()) complaints.push_back("--allow-change needs --resume");
    return;
  }
  const std::string& from = raw.resume.front();
  if (from.starts_with("--")) return;  // another flag in its place, which is told
  resume.from = from.empty() || is_true_word(from) ? From::kNewest
                : from == "auto"                   ? From::kNewestOrNothing
                                                   : From::kNamed;
  if (resume.from == From::kNamed) resume.folder = from;
  if (raw.flags.eval_only) complaints.push_back("--eval-only trains nothing: leave --resume out");
  if (resume.from != From::kNamed && raw.flags.output.empty()) {
    complaints.push_back("--resume needs --output, whose newest checkpoint it takes, or a folder");
  }
}

// A shell hands \n over as two characters.
void settle_separator(Flags& flags, Complaints& complaints) {
  if (!flags.separator) return;
  const std::string typed = *flags.separator;
  std::string text;
  for (size_t i = 0; i < typed.size(); ++i) {
    const char c = typed[i];
    if (c != '\\') {
      text.push_back(c);
      continue;
    }
    const char next = i + 1 < typed.size() ? typed[++i] : '\0';
    const size_t known = std::string_view("nt\\").find(next);
    if (known == std::string_view::npos) {
      complaints.push_back(
          fmt::format("--separator {}: a \\ stands before n, t or \\ only", shortened(typed)));
      return;
    }
    text.push_back("\n\t\\"[known]);
  }
  flags.separator = text;
}

// How files are read. run_clm.py joins all texts and cuts them into blocks; a line that is spelled
// for it asks for that.
void settle_reading(RawFlags& raw, Complaints& complaints) {
  using data::LongText;
  Flags& flags = raw.flags;
  const auto chosen =
      choose<LongText>("--long-text", raw.long_text,
                       {{"cut", LongText::kCut}, {"chunk", LongText::kChunk}}, complaints);
  const bool for_run_clm = flags.spellings.is_typed_as("--seq-len", "block_size") ||
                           flags.spellings.is_typed_as("--data", "train_file");
  flags.token_type = choose<data::TokenType>("--token-dtype", raw.token_dtype,
                                             {{"uint16", data::TokenType::kUint16},
                                              {"uint32", data::TokenType::kUint32},
                                              {"int32", data::TokenType::kUint32}},
                                             complaints);
  if (flags.max_length && !flags.seq_len) {  // messages name the flag that was given
    flags.spellings.add("--seq-len", flags.spellings.of("--max-length"));
  }
  flags.long_text_given = chosen.has_value();
  flags.long_text = chosen.value_or(for_run_clm ? LongText::kChunk : LongText::kCut);
}

template <typename T>
void require_positive(const char* name, const std::optional<T>& value, Complaints& complaints) {
  if (value && !(*value > 0 && std::isfinite(static_cast<double>(*value)))) {
    complaints.push_back(fmt::format("{} {}: must be above 0", name, *value));
  }
}

void check_numbers(const Flags& flags, Complaints& complaints) {
  require_positive("--steps", flags.steps, complaints);
  require_positive("--epochs", flags.epochs, complaints);
  require_positive("--seq-len", flags.seq_len, complaints);
  if (flags.max_length && *flags.max_length < 2) {
    complaints.push_back(fmt::format(
        "--max-length {}: must be at least 2, the first token is no target", *flags.max_length));
  }
  if (flags.seq_len && flags.max_length && *flags.seq_len + 1 != *flags.max_length) {
    complaints.push_back(
        fmt::format("--seq-len {} and --max-length {} differ: give one of them; a sample of {} "
                    "tokens has {} positions",
                    *flags.seq_len, *flags.max_length, *flags.max_length, *flags.max_length - 1));
  }
  require_positive("--inspect-samples", flags.inspected, complaints);
  require_positive("--max_train_samples", flags.max_train_samples, complaints);
  require_positive("--max-eval-samples", flags.max_eval_samples, complaints);
  require_positive("--eval-micro-batch", flags.eval_micro_batch, complaints);
  require_positive("--timeout", flags.timeout_s, complaints);
  require_positive("--grace", flags.state.grace_s, complaints);
}

// No file of the run can have prompts and completions.
bool is_without_pairs(const Flags& flags) {
  const auto has_records = [](const std::string& path) {
    return path.ends_with(".jsonl") || path.ends_with(".json");
  };
  return !has_records(flags.data) && !has_records(flags.eval_data);
}

// What no file can be called stands in no later message.
void check_lengths(const Flags& flags, Complaints& complaints) {
  const std::pair<const char*, const std::string&> paths[] = {{"--model", flags.model},
                                                              {"--data", flags.data},
                                                              {"--eval-data", flags.eval_data},
                                                              {"--metrics", flags.metrics},
                                                              {"--output", flags.output}};
  for (const auto& [name, path] : paths) {
    if (path.size() < PATH_MAX) continue;
    complaints.push_back(
        fmt::format("{} {}: a path has at most {} bytes", name, shortened(path), PATH_MAX - 1));
  }
}

void check_files(const Flags& flags, Complaints& complaints) {
  if (flags.model.empty()) complaints.push_back("--model is missing: a Hugging Face directory");
  const bool has_data = !flags.data.empty() || (flags.eval_only && !flags.eval_data.empty());
  if (!has_data && !flags.print_config) {
    complaints.push_back("--data is missing: a .jsonl, .json, .txt or .bin file");
  }
  if (flags.prompt_field.empty() != flags.completion_field.empty()) {
    complaints.push_back("--prompt-field and --completion-field are given together or not at all");
  }
  if (flags.separator && !flags.separator->empty() && is_without_pairs(flags)) {
    complaints.push_back(
        "--separator stands between prompt and completion of .jsonl or .json data");
  }
  const auto needs_output = [&](const char* name, bool given) {
    if (given && flags.output.empty()) complaints.push_back(fmt::format("{} needs --output", name));
  };
  needs_output("--overwrite", flags.overwrite);
  needs_output("--save-dtype", flags.save_dtype.has_value());
}

void check_evaluation(const RawFlags& raw, Complaints& complaints) {
  const Flags& flags = raw.flags;
  const auto excludes = [&](const char* name, bool given) {
    if (flags.eval_only && given) {
      complaints.push_back(fmt::format("--eval-only trains nothing: leave {} out", name));
    }
  };
  excludes("--steps", flags.steps.has_value());
  excludes("--epochs", flags.epochs.has_value());
  excludes("--eval-every", raw.cadences.eval_every.has_value());
  excludes("--save-every", raw.cadences.save_every.has_value());
  if (flags.max_eval_samples && !flags.eval_only && flags.eval_data.empty()) {
    complaints.push_back("--max-eval-samples needs --eval-data or --eval-only");
  }
}

// What a script does that asks --do_train and --do_eval: without the one, flags about it are idle.
void settle_tasks(RawFlags& raw, Complaints& complaints) {
  Flags& flags = raw.flags;
  const bool evaluates = raw.do_eval.value_or(false);
  if (raw.do_train == false) {
    if (raw.do_eval == false)
      complaints.push_back("--do_train False and --do_eval False: nothing to do");
    flags.eval_only = true;
    flags.steps.reset();
    flags.epochs.reset();
    raw.cadences = {};
  }
  if (evaluates && flags.eval_data.empty()) {
    complaints.push_back(
        "--do_eval needs --eval-data (--validation_file): no part of --data is set aside for it");
  }
  const std::string& strategy = raw.cadences.eval_strategy;
  const bool steps =
      raw.cadences.eval_every && !flags.spellings.is_typed_as("--eval-every", "eval_steps");
  const bool on_the_way = steps || !(strategy.empty() || strategy == "no");
  if (raw.do_eval != false || on_the_way || flags.eval_data.empty()) return;
  note(flags.notes, "--eval-data", "--eval-data is not read: --do_eval False");
  flags.eval_data.clear();
}

// With both, Trainer takes its --max_steps.
void settle_length(Flags& flags, Complaints& complaints) {
  if (!flags.steps || !flags.epochs) return;
  if (!flags.spellings.is_typed_as("--steps", "max_steps")) {
    complaints.push_back("--steps and --epochs exclude each other: give one of them");
    return;
  }
  note(flags.notes, "--epochs", "--epochs {}: no effect beside --steps {}", *flags.epochs,
       *flags.steps);
  flags.epochs.reset();
}

}  // namespace

Flags settle(RawFlags raw, Complaints& complaints) {
  settle_config(raw, complaints);
  settle_precision(raw, complaints);
  settle_recompute(raw, complaints);
  settle_seed(raw, complaints);
  settle_choices(raw, complaints);
  settle_separator(raw.flags, complaints);
  settle_reading(raw, complaints);
  raw.flags.shuffle = !raw.no_shuffle;
  if (!raw.betas.empty()) raw.flags.values.betas = {raw.betas.at(0), raw.betas.at(1)};
  settle_tasks(raw, complaints);
  settle_length(raw.flags, complaints);
  settle_cadences(raw.cadences, raw.flags, complaints);
  settle_resume(raw, complaints);
  settle_schedule(raw, complaints);
  settle_warmup(raw, complaints);
  settle_report_to(raw.report_to, raw.logging_dir, raw.flags, complaints);
  check_numbers(raw.flags, complaints);
  check_lengths(raw.flags, complaints);
  check_files(raw.flags, complaints);
  check_evaluation(raw, complaints);
  if (raw.flags.eval_only && !raw.flags.eval_data.empty() && !raw.flags.data.empty()) {
    note(raw.flags.notes, "--data",
         "--data is not read: --eval-data is evaluated, and nothing trained");
  }
  return std::move(raw.flags);
}

}  // namespace zeroth::trainer
