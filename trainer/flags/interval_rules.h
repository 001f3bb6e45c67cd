// Rules of Hugging Face's TrainingArguments that turn flags about evaluating, saving and logging
// into Intervals.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "trainer/flags/interval.h"

namespace zeroth::trainer {

struct Flags;

// Flags as typed; empty or unset: not given.
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

// Fills flags.intervals from `raw` and from the data, output and defaults that `flags` already has.
// Appends problems to `errors`, and values without effect to flags.notes.
void resolve_intervals(const RawIntervals& raw, Flags& flags, std::vector<std::string>& errors);

}  // namespace zeroth::trainer
