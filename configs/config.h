// The resolved configuration of a run: what a ds_config.json says once every "auto" and every
// default has a value. Plain structs: the default stands on the field, effect and cost in the
// comment above it. Sizes named *_elements count parameters, not bytes, as in DeepSpeed.
#pragma once

#include <cstdint>
#include <optional>

#include "configs/offload_config.h"
#include "configs/report_config.h"
#include "configs/update_config.h"

namespace zeroth::configs {

enum class Precision { kFp32, kFp16, kBf16 };

struct BatchConfig {
  // Samples per optimizer step over all ranks: micro_batch_size * accumulation_steps * data ranks,
  // or fewer where a run goes on with ranks that do not divide it.
  int64_t train_batch_size = 1;
  // Samples that one rank runs forward and backward at once. Activation memory grows with it.
  int64_t micro_batch_size = 1;
  // Micro-batches per step. More of them cost time but no activation memory.
  int64_t accumulation_steps = 1;
};

// How gradients are summed over the ranks.
struct GradientConfig {
  enum class Reduction { kMean, kSum };
  // kSum: every gradient, and so the norm that is printed and clipped, is the number of ranks times
  // that of kMean.
  Reduction reduce = Reduction::kMean;
  // When an all-reduce divides gradients by the number of ranks R: before it sums (true) or after.
  // With false, predivide_factor f > 0 divides by f before and by R/f after. A reduce-scatter
  // divides before unless f says otherwise. The mean is the same; range and rounding on the wire
  // are not. kSum ignores both, as DeepSpeed.
  bool prescale = false;
  double predivide_factor = 1.0;
  // Precision in which gradients cross the wire. Unset: the working precision.
  std::optional<Precision> communication = {};
  // Precision of the buffers in which micro-batches accumulate: kFp32 or the working precision.
  // DeepSpeed's default is the working precision; in bf16 it loses what is small against the sum.
  Precision accumulation = Precision::kFp32;
};

struct ZeroConfig {
  // 0 replicates everything; 1 shards optimizer state; 2 also gradients; 3 also parameters.
  int stage = 0;
  // Gradient reductions under way together hold at most this many elements, or one block. More of
  // them overlap better and cost memory. A larger block crosses in pieces of this size, which are
  // copied for it.
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
  // 0: only the block in use, nothing is gathered ahead.
  int64_t max_live_elements = 1'000'000'000;
  // Stage 3: so many neighbouring data ranks keep all parameters between them, gather from each
  // other alone, and are brought up to date once after an update. 1: parameters are gathered from
  // all ranks. Takes parameters / hpz_partition_size of memory, saves the slow way between runs of
  // ranks. Changes no result.
  int64_t hpz_partition_size = 1;
  // Whether gathers and reductions run beside compute. Changes no result.
  bool overlap_comm = true;
  // Whether a GPU updates what rests on it beside the next forward pass, each unit before its first
  // use; false: all before it. Changes no result.
  bool overlap_step = false;
  // Stages 1, 2, 3: each rank receives only its shard of a sum (false: all of it, and keeps its
  // shard). Changes no result.
  bool reduce_scatter = true;
  // False: a trainable parameter that gets no gradient in a step is an error that names it. True:
  // its gradient is zero.
  bool ignore_unused_parameters = true;
  // The optimizer updates a shard in tiles of at most this many elements. Changes no result.
  int64_t sub_group_size_elements = 1'000'000'000;
  OffloadOptimizerConfig offload_optimizer = {};
  OffloadParamConfig offload_param = {};
  // DeepSpeed saves a stage-3 model only with it. A saved model is whole here in any case.
  bool gather_16bit_weights_on_model_save = false;
};

// Every layer is split over neighbouring ranks, which draw the same samples.
struct TensorParallelConfig {
  // Over so many; a divisor of the number of ranks. 1: off. Each rank holds and computes that part
  // of a layer, whose activations are gathered from and summed over the ranks: four times in
  // forward and six times in backward.
  int64_t size = 1;
  // Whether those of backward run beside its products.
  bool overlap_comm = false;
};

struct RecomputeConfig {
  // Every N-th block keeps only its input and runs forward again in backward. 0: off.
  int64_t every_nth_block = 0;
  // This many evenly spaced block inputs are kept, everything between is run again. 0: off.
  int64_t number_checkpoints = 0;
  // Kept block inputs wait for their backward in host memory; nothing changes on a CPU run.
  bool cpu_checkpointing = false;
};

// The mean that a step's loss and gradient are.
enum class LossMean {
  kToken,      // over the trained tokens of the global batch
  kMicroBatch  // over micro-batches and ranks, of each one's mean over its trained tokens: bare
               // DeepSpeed's. One without trained tokens has no mean and does not count
};

// What happens at a step whose loss or gradient is not finite.
enum class OnNonFinite {
  kSkip,  // no update; fp16 lowers its scale; too many in a row end the run
  kFail   // the first one ends the run and is named; with a dynamic scale the first at its floor
};

struct Config {
  BatchConfig batch;
  Precision precision = Precision::kFp32;
  LossScaleConfig loss_scale;
  // bf16: false applies an update whatever its gradients are; the other precisions always look.
  bool check_grad_overflow = true;
  OnNonFinite on_non_finite = OnNonFinite::kSkip;
  GradientConfig gradients;
  // Global L2 norm to which gradients are clipped; 0 switches clipping off. DeepSpeed's default,
  // and Trainer's.
  double gradient_clipping = 1.0;
  LossMean loss_mean = LossMean::kToken;
  // Every dropout probability of the model, in [0, 1). Unset: those of its config.json.
  std::optional<double> dropout = {};
  OptimizerConfig optimizer;
  SchedulerConfig scheduler;
  ZeroConfig zero;
  TensorParallelConfig tensor_parallel;
  AioConfig aio;
  RecomputeConfig recompute;
  // Samples at the end of an epoch that fill no whole global batch are left out.
  bool dataloader_drop_last = false;
  // Seed of sample order, initial weights and dropout.
  uint64_t seed = 42;

  // A detailed line every this many steps (0: never). The progress line does not depend on it.
  int64_t steps_per_print = 0;
  // Adds a split of each step's time into forward, backward, reduce and update to the printed line.
  bool wall_clock_breakdown = false;
  // Device and host memory before and after each phase of a step.
  bool memory_breakdown = false;
  // The resolved configuration and the engine's state are printed when training starts.
  bool dump_state = false;
  LogLevel log_level = LogLevel::kInfo;
  MonitorConfig csv_monitor;
  MonitorConfig tensorboard;
  CommsLoggerConfig comms_logger;
  FlopsProfilerConfig flops_profiler;
};

}  // namespace zeroth::configs
