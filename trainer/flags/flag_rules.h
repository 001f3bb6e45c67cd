// Rules between flags, independent of the configuration file.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "trainer/flags/flags.h"
#include "trainer/flags/interval_rules.h"

namespace zeroth::trainer {

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
  std::string token_dtype;
  std::optional<double> warmup_steps;  // below 1: a fraction of all steps
  std::string loss_mean;
  std::string on_non_finite;
  std::string save_dtype;
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

// Returns the flags for the run. Appends problems to `errors`, one line each.
Flags resolve_flags(RawFlags raw, std::vector<std::string>& errors);

}  // namespace zeroth::trainer
