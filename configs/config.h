// The resolved configuration of a run: the contents of ds_config.json after every "auto" and every
// default has a value. Plain structs: each field has its default as initializer and its effect and
// cost in the comment above. Sizes named *_elements count parameters, not bytes, as in DeepSpeed.
#pragma once

#include <cstdint>
#include <optional>

#include "configs/lora_config.h"
#include "configs/offload_config.h"
#include "configs/pipeline_config.h"
#include "configs/report_config.h"
#include "configs/update_config.h"

namespace zeroth::configs {

enum class Precision { kFp32, kFp16, kBf16 };

struct BatchConfig {
  // Samples per optimizer step over all ranks: micro_batch_size * accumulation_steps *
  // data-parallel ranks, or fewer if a run resumes on a number of ranks that does not divide it.
  int64_t train_batch_size = 1;
  // Samples that one rank runs forward and backward at once. Activation memory grows with it.
  int64_t micro_batch_size = 1;
  // Micro-batches per step. More of them cost time but, unless breadth-first, no activation memory.
  int64_t accumulation_steps = 1;

  bool accumulates() const { return accumulation_steps > 1; }
  // Returns the samples of a micro-batch over all ranks.
  int64_t micro_step_samples() const { return train_batch_size / accumulation_steps; }
};

// Reduction of gradients over the ranks.
struct GradientConfig {
  enum class Reduction { kMean, kSum };
  // With kSum every gradient, and thus the norm that is printed and clipped, is larger than with
  // kMean by a factor of the number of ranks.
  Reduction reduce = Reduction::kMean;
  // True: an all-reduce divides gradients by the number of ranks R before it sums; false: after.
  // With false, predivide_factor f > 0 divides by f before and by R/f after. A reduce-scatter
  // divides before unless f requests otherwise. The mean is the same; range and rounding of the
  // communicated values are not. kSum ignores both, as in DeepSpeed.
  bool prescale = false;
  double predivide_factor = 1.0;
  // Precision in which gradients are communicated. Unset: the working precision.
  std::optional<Precision> communication = {};
  // Precision of the buffers that accumulate micro-batches: kFp32 or the working precision.
  // DeepSpeed's default is the working precision; in bf16 it loses values that are small against
  // the sum.
  Precision accumulation = Precision::kFp32;
};

struct ZeroConfig {
  // ZeRO stage: 0 replicates everything; 1 shards optimizer state; 2 also gradients; 3 also
  // parameters.
  int stage = 0;
  // Maximum elements of all gradient reductions in flight, or one block. More of them overlap
  // better and cost memory. A larger block is reduced in buckets of this size, into which it is
  // copied.
  int64_t reduce_bucket_elements = 500'000'000;
  // Stages 1 and 2: updated parameters of full blocks that fit in this many elements are gathered
  // before their use.
  int64_t allgather_bucket_elements = 500'000'000;
  // Stage 3: full blocks that fit in this many elements are prefetched (at least one unless 0).
  int64_t prefetch_bucket_elements = 50'000'000;
  // Stage 3: units of at most this many elements stay gathered on every rank.
  int64_t param_persistence_threshold_elements = 100'000;
  // Stage 3: maximum gathered elements at a time; must hold two neighboring blocks. 0: only the
  // block in use, without prefetch.
  int64_t max_live_elements = 1'000'000'000;
  // Stage 3: this many neighboring data-parallel ranks hold a secondary copy of all parameters,
  // gather only from each other, and refresh it once after an update. 1: parameters are gathered
  // from all ranks. Uses parameters / hpz_partition_size of memory and avoids slow links between
  // these groups. Changes no result.
  int64_t hpz_partition_size = 1;
  // Runs gathers and reductions concurrently with compute. Changes no result.
  bool overlap_comm = true;
  // True: a GPU updates the state that it holds concurrently with the next forward pass, each unit
  // before its first use. False: all updates precede the pass. Changes no result.
  bool overlap_step = false;
  // Stages 1, 2, 3: each rank receives only its shard of a sum (false: it receives the full sum and
  // keeps its shard). Changes no result.
  bool reduce_scatter = true;
  // False: a trainable parameter without a gradient in a step is an error that names it. True: its
  // gradient is zero.
  bool ignore_unused_parameters = true;
  // Maximum elements of the shard chunks in which the optimizer updates. Changes no result.
  int64_t sub_group_size_elements = 1'000'000'000;
  OffloadOptimizerConfig offload_optimizer = {};
  OffloadParamConfig offload_param = {};
  // DeepSpeed saves a stage-3 model only with this flag. This program always saves a full model.
  bool gather_16bit_weights_on_model_save = false;
};

// Tensor parallelism: every layer is split over neighboring ranks, which receive the same samples.
struct TensorParallelConfig {
  // Ranks that split a layer; a divisor of the number of ranks. 1: off. Each rank holds and
  // computes its part of a layer. Activations are gathered from and summed over these ranks four
  // times in forward and six times in backward.
  int64_t size = 1;
  // Runs the collectives of backward concurrently with its matrix products.
  bool overlap_comm = false;
};

struct RecomputeConfig {
  // Every N-th block keeps only its input and runs forward again in backward. 0: off.
  int64_t every_nth_block = 0;
  // This many evenly spaced block inputs are kept; all blocks between them run again. 0: off.
  int64_t number_checkpoints = 0;
  // Kept block inputs are offloaded to CPU memory until their backward. Has no effect on a CPU run.
  bool cpu_checkpointing = false;

  bool is_on() const { return every_nth_block > 0 || number_checkpoints > 0; }
};

// LossMean selects the mean that defines a step's loss and gradient.
enum class LossMean {
  kToken,      // over the label tokens of the global batch
  kMicroBatch  // over micro-batches and ranks, of each one's mean over its label tokens, as in
               // plain DeepSpeed. Micro-batches without label tokens do not count
};

// OnNonFinite selects the response to a step whose loss or gradient is not finite.
enum class OnNonFinite {
  kSkip,  // no update; fp16 lowers its scale; too many in a row end the run
  kFail   // the first one ends the run and is named; with a dynamic scale the first at its floor
};

struct Config {
  BatchConfig batch;
  Precision precision = Precision::kFp32;
  LossScaleConfig loss_scale;
  // bf16: false applies an update whatever its gradients are; the other precisions always check.
  bool check_grad_overflow = true;
  OnNonFinite on_non_finite = OnNonFinite::kSkip;
  GradientConfig gradients;
  // Global L2 norm to which gradients are clipped; 0 disables clipping. Both DeepSpeed and Trainer
  // have this default.
  double gradient_clipping = 1.0;
  LossMean loss_mean = LossMean::kToken;
  // Every dropout probability of the model, in [0, 1). Unset: those of its config.json.
  std::optional<double> dropout = {};
  OptimizerConfig optimizer;
  SchedulerConfig scheduler;
  ZeroConfig zero;
  // Adapters that are trained in place of the model, if enabled.
  LoraConfig lora;
  QuantizationConfig quantization;
  TensorParallelConfig tensor_parallel;
  PipelineConfig pipeline;
  AioConfig aio;
  RecomputeConfig recompute;
  // Drops samples at the end of an epoch that fill no full global batch.
  bool dataloader_drop_last = false;
  // Seed of sample order, initial weights and dropout.
  uint64_t seed = 42;

  // Steps between detailed log lines (0: none). The progress line does not depend on it.
  int64_t steps_per_print = 0;
  // Adds the times of forward, backward, reduce and update to the printed line of each step.
  bool wall_clock_breakdown = false;
  // Logs device and CPU memory before and after each phase of a step.
  bool memory_breakdown = false;
  // Prints the resolved configuration and the engine's state when training starts.
  bool dump_state = false;
  LogLevel log_level = LogLevel::kInfo;
  MonitorConfig csv_monitor;
  MonitorConfig tensorboard;
  CommsLoggerConfig comms_logger;
  FlopsProfilerConfig flops_profiler;

  bool scales_loss() const { return precision == Precision::kFp16; }
  // Returns how many of `ranks` receive different samples, that is, the data-parallel size over
  // which the batch is partitioned.
  int64_t data_ranks(int64_t ranks) const { return ranks / sharing_ranks(); }
  // Returns how many ranks compute the same samples: those that share layers, in each stage.
  int64_t sharing_ranks() const { return tensor_parallel.size * pipeline.stages; }
  // Returns whether a step keeps the activations of all its micro-batches. With one stage they pass
  // each block one right after the other, so that gradients are summed before they are reduced.
  bool keeps_all_micro_batches() const {
    return batch.accumulates() && pipeline.is_breadth_first();
  }
};

}  // namespace zeroth::configs
