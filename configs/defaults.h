// Defaults of flags that a command line omits.
#pragma once

#include <cstdint>
#include <optional>

#include "configs/hf_schedule.h"

namespace zeroth::configs {

struct FlagValues;

// Defaults has one set of values for each spelling of the command line. A line for Hugging Face's
// Trainer (FlagValues::for_trainer) has Trainer's defaults, so that it means the same here.
// Defaults that both share (rate, betas, batch, seed) are defined where they are used.
struct Defaults {
  double epochs = 1;
  // True: an epoch ends with a step over its remaining samples. False: steps continue across the
  // end of an epoch, and only the last step of the run may be short.
  bool whole_epochs = false;
  // Samples that a rank evaluates at once. Unset: as many as it trains at once.
  std::optional<int64_t> eval_micro_batch = {};
  // Schedule if the file has no scheduler. Unset: a constant rate, after DeepSpeed's warm-up if
  // --warmup-steps is set.
  std::optional<HfSchedule::Type> schedule = {};
  // True: norm weights and biases are not decayed if the file has no optimizer. A file's optimizer
  // decays all parameters, under Trainer too: transformers passes them in one group.
  bool no_decay = false;
};

const Defaults& defaults_for(const FlagValues& flags);

}  // namespace zeroth::configs
