// The options of the command line, and rules between flags, independent of the configuration file.
#pragma once

#include <fmt/ranges.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/text/printable.h"
#include "trainer/flags/flags.h"

namespace CLI {
class App;
}

namespace zeroth::trainer {

// Returns the value paired with `text`; appends an error that lists all words if there is none.
// Returns nothing if `text` is empty or another flag is in its place.
template <typename T>
std::optional<T> parse_choice(const char* name, const std::string& text,
                              const std::vector<std::pair<std::string_view, T>>& values,
                              std::vector<std::string>& errors) {
  if (text.empty() || text.starts_with("--")) return std::nullopt;
  std::vector<std::string_view> words;
  for (const auto& [word, value] : values) {
    if (word == text) return value;
    words.push_back(word);
  }
  errors.push_back(
      fmt::format("{} {}: must be one of {}", name, shortened(text), fmt::join(words, ", ")));
  return std::nullopt;
}

// Flags about evaluating, saving and logging as typed; empty or unset: not given.
struct RawIntervals {
  std::string eval_strategy;
  std::string save_strategy;
  std::string logging_strategy;
  std::optional<double> eval_every;
  std::optional<double> save_every;
  std::optional<double> save_minutes;
  std::optional<double> logging_steps;
  std::optional<double> eval_delay;
  std::optional<int64_t> save_total_limit;
  std::string metric_for_best_model;
  std::optional<bool> greater_is_better;
  bool load_best_model_at_end = false;
  bool eval_on_start = false;
  bool logging_first_step = false;
};

// Flags as CLI11 reads them, before they are checked.
struct RawFlags {
  Flags flags;
  std::vector<std::string> deepspeed;  // --deepspeed FILE, or bare beside --deepspeed_config FILE
  std::string deepspeed_config;
  std::vector<double> betas;
  std::vector<std::string> gradient_checkpointing;  // "true" without =N
  std::optional<int64_t> seed;
  bool bf16 = false;
  bool fp16 = false;
  bool fp32 = false;
  bool no_shuffle = false;
  bool drop_last = false;
  bool no_decay = false;
  std::string lr_scheduler_type;
  std::string long_text;
  std::string dataset;      // names in dataset_info.json, separated by commas
  std::string dataset_dir;  // where that is
  std::string on_long;
  std::string on_bad_record;
  std::string token_cache;
  std::string inspect_format;
  std::string train_on;
  std::optional<bool> assistant_only_loss;
  std::optional<bool> completion_only_loss;
  std::string chat_template;
  std::string token_dtype;
  std::optional<double> warmup_steps;  // below 1: a fraction of all steps
  std::string loss_mean;
  std::string on_non_finite;
  std::string save_dtype;
  std::vector<std::string> lora_target_modules;  // words, each a name or several
  std::vector<std::string> lora_modules_to_save;
  RawIntervals intervals;
  std::vector<std::string> resume;  // "": the flag has no value
  std::optional<int64_t> save_failures;
  std::optional<bool> do_train;
  std::optional<bool> do_eval;
  std::vector<std::string> report_to;
  std::string logging_dir;
  std::vector<std::string> errors;  // for values that do not parse
  int local_rank = 0;               // passed by DeepSpeed's launcher; the environment has it too
};

// Adds all options to `app`, which stores their values in `raw`.
void add_options(CLI::App& app, RawFlags& raw);

// Rules of Hugging Face's TrainingArguments: fills flags.intervals from `raw` and from the data,
// output and defaults that `flags` already has. Appends problems to `errors`, and values without
// effect to flags.notes.
void resolve_intervals(const RawIntervals& raw, Flags& flags, std::vector<std::string>& errors);

// Resolves how data files are read, and what of them is trained. Appends problems to `errors`.
void resolve_data(RawFlags& raw, std::vector<std::string>& errors);

// Returns the flags for the run. Appends problems to `errors`, one line each.
Flags resolve_flags(RawFlags raw, std::vector<std::string>& errors);

}  // namespace zeroth::trainer
