// Estimate of what initialize() creates, without allocating memory for it.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>

#include "comm/mesh_layout.h"
#include "configs/config.h"
#include "device/tensor.h"
#include "engine/memory/activations.h"
#include "engine/step/partition.h"
#include "model/block.h"
#include "zero/memory_plan.h"
#include "zero/unit.h"

namespace zeroth::engine {

// DecayCounts is the number of trainable elements of the full model that weight decay affects, and
// of those that OptimizerConfig::no_decay excludes.
struct DecayCounts {
  int64_t decayed = 0;
  int64_t not_decayed = 0;
};

struct MemoryEstimate {
  int64_t num_parameters = 0;  // of the full model, tied weights once
  int64_t num_saved = 0;       // those of them that a saved model holds
  int64_t state_bytes = 0;     // of a checkpoint, besides the model's own files
  DecayCounts decay;
  int64_t param_buffer_elements = 0;  // of the largest shard of parameters in a file; 0: none
  torch::Dtype grad_buffer_dtype = torch::kFloat;  // of backward's gradient buffer
  // Parameters that are gathered, or read from an offload device, for each use: their bytes, and
  // the bytes that a step gathers of them, on the rank that gathers most; 0: none are.
  int64_t gathered_parameters = 0, gathered_per_step = 0;
  std::string strategy;  // one line for the user
};

// MicroBatchSize is the size of the data that the blocks process at a time.
struct MicroBatchSize {
  ChainBytes chain;                      // bytes of a micro-batch in each of the blocks
  int64_t row_tokens = 0;                // of the longest row
  int64_t eval_tokens = 0;               // of an evaluation's micro-batch; 0: nothing is evaluated
  std::vector<double> block_times = {};  // InitOptions::block_times
};

struct EstimateOptions {
  comm::MeshShape shape = {};  // of the ranks
  torch::DeviceType device = torch::kCPU;
  bool trains = true;         // InitOptions::trains
  bool saves_frozen = true;   // InitOptions::saves_frozen
  bool saves_beside = false;  // InitOptions::saves_beside_training
  int64_t row_elements = 0;   // of a block's input, for one row; 0: unknown
  // Maximum rows that a rank gets at once in training, with any configuration.
  int64_t max_rows = std::numeric_limits<int64_t>::max();
  std::optional<MicroBatchSize> micro_batch = std::nullopt;  // unset: activations are unknown
  std::vector<double> block_times = {};                      // InitOptions::block_times
  // Coordinate in mesh dim pp of the rank that is estimated. Unset: RunMemory::estimate takes the
  // rank that needs most, the others the first one.
  std::optional<int> pp_rank = {};
};

// Returns the estimate. Throws the Error that initialize would throw for a configuration that does
// not fit these blocks. Does not communicate, and does not change the blocks.
MemoryEstimate estimate_memory(const model::Blocks& blocks, const configs::Config& config,
                               const EstimateOptions& options);

// Returns the unit plan of the first rank at options.pp_rank, or of all.
zero::UnitPlan plan_of(const model::Blocks& blocks, const configs::Config& config,
                       const EstimateOptions& options);

// Return parts of a MemoryEstimate, for units that are planned already. Quantized weights count as
// their bytes.
int64_t count_parameters(const zero::UnitPlan& plan);
int64_t count_saved(const zero::UnitPlan& plan);
DecayCounts count_decay(const zero::UnitPlan& plan, const configs::OptimizerConfig& optimizer);

// Returns the memory of the rank of the plan, which the partition cut the chain for; unset: one
// rank holds it all. Throws the Errors of estimate_memory().
zero::MemoryPlan plan_memory(const zero::UnitPlan& plan, const configs::Config& config,
                             const EstimateOptions& options,
                             const std::optional<PipelinePartition>& partition = {});

}  // namespace zeroth::engine
