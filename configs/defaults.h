// What a command line leaves out: whose defaults it has.
#pragma once

#include <cstdint>
#include <optional>

#include "configs/hf_schedule.h"

namespace zeroth::configs {

struct FlagValues;

// A line that is spelled for Hugging Face's Trainer (FlagValues::for_trainer) has Trainer's, so
// that it means here what it means there. Those that are the same, the rate, betas, the batch, the
// seed, stand where they are used.
struct Defaults {
  double epochs = 1;
  // An epoch ends with a step of what is left of it; else steps go on across its end, and only the
  // last one of the run may be short.
  bool whole_epochs = false;
  // Samples that a rank evaluates at once; unset: as many as it trains at once.
  std::optional<int64_t> eval_micro_batch = {};
  // Where the file has no scheduler; unset: a constant rate, or --warmup-steps of DeepSpeed's
  // warm-up before it.
  std::optional<HfSchedule::Type> schedule = {};
  // Where the file has no optimizer, norm weights and biases are not decayed. One of the file
  // decays all parameters, under Trainer too: transformers hands them over in one group.
  bool no_decay = false;
};

const Defaults& defaults_for(const FlagValues& flags);

}  // namespace zeroth::configs
