// What a rank's training state takes, by what it is and by where it lies: known before any of it is
// allocated.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <vector>

#include "configs/config.h"
#include "zero/unit.h"

namespace zeroth::zero {

// Bytes of one rank. On a CPU run all host memory is the device's.
struct TierBytes {
  int64_t device = 0;
  int64_t pinned = 0;  // host memory that a GPU copies from and to
  int64_t host = 0;    // other host memory
  int64_t file = 0;

  int64_t total() const { return device + pinned + host + file; }
  TierBytes& operator+=(const TierBytes& other);
  bool operator==(const TierBytes&) const = default;
};

struct MemoryPlan {
  TierBytes parameters;        // in working precision: shards, and what is kept whole
  TierBytes gathered;          // whole parameters of the blocks in use and of the next ones
  TierBytes gradients;         // until the update
  TierBytes gradient_buffers;  // on their way to where they are kept
  TierBytes masters;           // where they are no copy of the parameters
  TierBytes states;            // moments
  TierBytes file_buffers;      // through which files are read and written
  TierBytes staging;           // copies between a GPU and its host; at most about this
  TierBytes saved_inputs;      // of blocks that run again in backward
  TierBytes saving;            // copies of what a checkpoint has yet to write
  TierBytes activations;       // estimated; none where a micro-batch's size is not known
  TierBytes runtime;           // LibTorch's own, and a part of the code that ranks share
  TierBytes gpu_runtime;       // a GPU's: CUDA's context and NCCL's communicators
  TierBytes held;              // by the blocks that are taken over, until weights are loaded
  TierBytes measuring;         // only before there is anything of the above: who updates
  TierBytes loading;           // only before the first step: fp32 values of a unit

  // The most that there is at a time, while the updater is measured or weights are loaded, or in
  // training, place by place.
  TierBytes peak() const;
};

struct StepEstimate {
  std::vector<size_t> accesses;   // the blocks that a step gathers, in order
  int64_t saved_inputs = 0;       // of one micro-batch
  int64_t saved_input_bytes = 0;  // of one of them, as far as known
  int64_t activation_bytes = 0;   // as far as known
};

// Of the plan's rank on a device of this type; what blocks hold is not known here. Throws an Error
// as check_sizes.
MemoryPlan plan_memory(const UnitPlan& plan, const configs::Config& config,
                       torch::DeviceType device, const StepEstimate& step);

}  // namespace zeroth::zero
