// What initialize() comes to, known without memory for it.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <limits>
#include <optional>
#include <string>

#include "comm/mesh_layout.h"
#include "configs/config.h"
#include "engine/activations.h"
#include "model/block.h"
#include "zero/memory_plan.h"
#include "zero/unit.h"

namespace zeroth::engine {

// Trainable parameters (elements, of the whole model) that weight decay acts on, and those that
// OptimizerConfig::no_decay leaves out.
struct DecayCounts {
  int64_t decayed = 0;
  int64_t not_decayed = 0;
};

struct MemoryEstimate {
  int64_t num_parameters = 0;  // of the whole model, tied weights once
  int64_t state_bytes = 0;     // that a checkpoint of it holds beside the model's own files
  DecayCounts decay;
  int64_t param_buffer_elements = 0;  // of the largest shard of parameters in a file; 0: none is
  torch::Dtype grad_buffer_dtype = torch::kFloat;  // of what backward writes gradients into
  std::string strategy;                            // one line for a person
};

// What runs through the blocks at a time.
struct MicroBatchSize {
  ChainBytes chain;         // what a micro-batch takes in each of the blocks
  int64_t row_tokens = 0;   // of the longest row
  int64_t eval_tokens = 0;  // of an evaluation's micro-batch; 0: nothing is evaluated
};

struct EstimateOptions {
  comm::MeshShape shape = {};  // of the ranks
  torch::DeviceType device = torch::kCPU;
  bool trains = true;         // as InitOptions::trains
  bool saves_beside = false;  // as InitOptions::saves_beside_training
  int64_t row_elements = 0;   // of a block's input, for one row; 0: not known
  // Rows that a rank ever gets at once in training, whatever the configuration.
  int64_t max_rows = std::numeric_limits<int64_t>::max();
  std::optional<MicroBatchSize> micro_batch = std::nullopt;  // unset: activations are not known
};

// Throws the Error that initialize would throw for a configuration that does not fit these blocks.
// Does not communicate and leaves the blocks as they are.
MemoryEstimate estimate_memory(const model::Blocks& blocks, const configs::Config& config,
                               const EstimateOptions& options);

// The units of the first of these ranks.
zero::UnitPlan plan_of(const model::Blocks& blocks, const EstimateOptions& options);

// The parts of a MemoryEstimate, for units that are planned already.
int64_t count_parameters(const zero::UnitPlan& plan);
DecayCounts count_decay(const zero::UnitPlan& plan, const configs::OptimizerConfig& optimizer);

// What one rank takes. Throws as estimate_memory().
zero::MemoryPlan plan_memory(const zero::UnitPlan& plan, const configs::Config& config,
                             const EstimateOptions& options);

}  // namespace zeroth::engine
