// The resolved configuration of a run: what a ds_config.json says once every "auto" and every
// default has a value. Plain structs: the default stands on the field, effect and cost in the
// comment above it. Sizes named *_elements count parameters, not bytes, as in DeepSpeed.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <optional>

namespace zeroth::configs {

enum class Precision { kFp32, kFp16, kBf16 };

struct BatchConfig {
  // Samples per optimizer step over all ranks. Always micro_batch_size * accumulation_steps *
  // data-parallel ranks.
  int64_t train_batch_size = 1;
  // Samples that one rank runs forward and backward at once. Activation memory grows with it.
  int64_t micro_batch_size = 1;
  // Micro-batches per step. More of them cost time but no activation memory.
  int64_t accumulation_steps = 1;
};

// Used when precision is kFp16.
struct LossScaleConfig {
  // 0 means dynamic; any other value is the fixed scale.
  double static_scale = 0;
  // The dynamic scale starts at 2^initial_scale_power.
  int initial_scale_power = 16;
  // Clean steps after which the dynamic scale doubles.
  int64_t window = 1000;
  // Overflows that are tolerated before the dynamic scale halves.
  int64_t hysteresis = 2;
  // Whether every clean step restores the hysteresis (otherwise only a doubling does).
  bool consecutive_hysteresis = false;
  // The dynamic scale never falls below this.
  double min_scale = 1;
};

struct OptimizerConfig {
  enum class Kind { kAdamW, kAdam };
  // kAdamW: decoupled weight decay; kAdam: decay added to the gradient.
  Kind kind = Kind::kAdamW;
  // Learning rate; WarmupLR and WarmupDecayLR replace it by their own.
  double lr = 1e-3;
  // Decay rates of the first and the second moment, in [0, 1).
  std::array<double, 2> betas = {0.9, 0.999};
  // Added to the root of the second moment.
  double eps = 1e-8;
  // Applied to every parameter.
  double weight_decay = 0;
};

// The learning rate of update s (counted from 0 over applied updates; a skipped step does not
// advance it).
struct SchedulerConfig {
  enum class Kind { kConstant, kWarmupLr, kWarmupDecayLr, kWarmupCosineLr };
  enum class Warmup { kLog, kLinear };
  // kConstant: the optimizer's lr at every update.
  Kind kind = Kind::kConstant;
  // kWarmupLr, kWarmupDecayLr: the rates before and after the warm-up.
  double warmup_min_lr = 0;
  double warmup_max_lr = 1e-3;
  // Updates of the warm-up as the file says it, at least 1 (DeepSpeed counts 1 as 2).
  int64_t warmup_num_steps = 1000;
  // Shape of the warm-up.
  Warmup warmup_type = Warmup::kLog;
  // kWarmupDecayLr, kWarmupCosineLr: the rate reaches its end at this update.
  int64_t total_num_steps = 0;
  // kWarmupCosineLr: ratios of the optimizer's lr.
  double warmup_min_ratio = 0;
  double cos_min_ratio = 1e-4;
};

struct ZeroConfig {
  // 0 replicates everything; 1 shards optimizer state; 2 also gradients; 3 also parameters.
  int stage = 0;
  // Gradient reductions under way together hold at most this many elements, or one block. More of
  // them overlap better and cost memory.
  int64_t reduce_bucket_elements = 500'000'000;
  // Stages 1 and 2: updated parameters of whole blocks that fit in this many elements are gathered
  // ahead of use.
  int64_t allgather_bucket_elements = 500'000'000;
  // Stage 3: whole blocks that fit in this many elements are gathered ahead of use (at least one
  // unless 0).
  int64_t prefetch_bucket_elements = 50'000'000;
  // Stage 3: units of at most this many elements stay whole on every rank.
  int64_t param_persistence_threshold_elements = 100'000;
  // Stage 3: at most this many gathered elements at a time; must hold two neighbouring blocks.
  int64_t max_live_elements = 1'000'000'000;
  // Whether gathers and reductions run beside compute. Changes no result.
  bool overlap_comm = true;
};

struct RecomputeConfig {
  // Every N-th block keeps only its input and runs forward again in backward. 0: off.
  int64_t every_nth_block = 0;
  // This many evenly spaced block inputs are kept, everything between is run again. 0: off.
  int64_t number_checkpoints = 0;
};

struct Config {
  BatchConfig batch;
  Precision precision = Precision::kFp32;
  LossScaleConfig loss_scale;
  // Global L2 norm to which gradients are clipped; 0 switches clipping off.
  double gradient_clipping = 1.0;
  OptimizerConfig optimizer;
  SchedulerConfig scheduler;
  ZeroConfig zero;
  RecomputeConfig recompute;
  // A detailed line every this many steps (0: never). The progress line does not depend on it.
  int64_t steps_per_print = 0;
  // Adds a split of each step's time into forward, backward, reduce and update to the printed line.
  bool wall_clock_breakdown = false;
  // Seed of sample order, initial weights and (later) dropout.
  uint64_t seed = 42;
};

}  // namespace zeroth::configs
