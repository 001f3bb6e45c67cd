// The memory of a rank's training state by purpose and tier, computed before any of it is
// allocated.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "configs/config.h"
#include "device/tensor.h"

namespace zeroth::zero {

struct UnitPlan;

// Bytes of one rank. On a CPU run all CPU memory counts as the device's.
struct TierBytes {
  int64_t device = 0;
  int64_t pinned = 0;  // host memory from which a GPU copies, and to which
  int64_t host = 0;    // other CPU memory
  int64_t file = 0;

  int64_t total() const { return device + pinned + host + file; }
  TierBytes& operator+=(const TierBytes& other);
  friend TierBytes operator+(TierBytes sum, const TierBytes& other) { return sum += other; }
  bool operator==(const TierBytes&) const = default;
};

struct MemoryPlan {
  TierBytes parameters;        // in working precision: shards, and full parameters that are kept
  TierBytes gathered;          // full parameters of the blocks in use and the prefetched ones
  TierBytes gradients;         // until the update
  TierBytes gradient_buffers;  // between backward and where gradients are kept
  TierBytes masters;           // unless the parameters are the master
  TierBytes states;            // moments
  TierBytes file_buffers;      // for reads and writes of files
  TierBytes staging;           // copies between a GPU and the CPU; at most about this
  TierBytes saved_inputs;      // inputs of blocks with activation recomputation
  TierBytes saving;            // copies of values that a checkpoint has yet to write
  TierBytes activations;       // estimated; 0 if a micro-batch's size is unknown
  TierBytes runtime;           // LibTorch's own, and part of the code that ranks share
  TierBytes gpu_runtime;       // a GPU's: CUDA's context and NCCL's communicators
  TierBytes held;              // memory of the caller's blocks, until weights are loaded
  TierBytes measuring;         // before any of the above exists: choice of optimizer device
  TierBytes loading;           // before the first step only: fp32 values of a unit

  // Returns the maximum at any time, tier by tier: while the optimizer device is measured or
  // weights are loaded, or in training.
  TierBytes peak() const;
};

struct StepEstimate {
  std::vector<size_t> accesses;        // the blocks that a step gathers, in order
  std::vector<size_t> backward_order;  // as GradReducer::set_backward_order()
  int64_t saved_inputs = 0;            // that are saved at a time
  int64_t saved_input_bytes = 0;       // bytes of one saved input, as far as known
  int64_t activation_bytes = 0;        // bytes of activations, as far as known
};

// Computes the memory of the plan's rank on a device of this type; `held` is not known here. Throws
// an Error like check_sizes.
MemoryPlan plan_memory(const UnitPlan& plan, const configs::Config& config,
                       torch::DeviceType device, const StepEstimate& step);

}  // namespace zeroth::zero
