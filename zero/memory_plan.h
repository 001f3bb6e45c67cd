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
struct PlaceBytes {
  int64_t device = 0;
  int64_t pinned = 0;  // host memory that a GPU copies from and to
  int64_t host = 0;    // other host memory
  int64_t file = 0;

  int64_t total() const { return device + pinned + host + file; }
  PlaceBytes& operator+=(const PlaceBytes& other);
  bool operator==(const PlaceBytes&) const = default;
};

struct MemoryPlan {
  PlaceBytes parameters;        // in working precision: shards, and what is kept whole
  PlaceBytes gathered;          // whole parameters of the blocks in use and of the next ones
  PlaceBytes gradients;         // until the update
  PlaceBytes gradient_buffers;  // on their way to where they are kept
  PlaceBytes masters;           // where they are no copy of the parameters
  PlaceBytes states;            // moments
  PlaceBytes file_buffers;      // through which files are read and written
  PlaceBytes staging;           // copies between a GPU and its host; at most about this
  PlaceBytes kept_inputs;       // of blocks that run again in backward
  PlaceBytes saving;            // copies of what a checkpoint has yet to write
  PlaceBytes activations;       // estimated; none where a micro-batch's size is not known
  PlaceBytes runtime;           // LibTorch's own, and a part of the code that ranks share
  PlaceBytes gpu_runtime;       // a GPU's: CUDA's context and NCCL's communicators
  PlaceBytes held;              // by the blocks that are taken over, until weights are loaded
  PlaceBytes measuring;         // only before there is anything of the above: who updates
  PlaceBytes loading;           // only before the first step: fp32 values of a unit

  // The most that there is at a time, while the updater is measured or weights are loaded, or in
  // training, place by place.
  PlaceBytes peak() const;
};

struct StepOutline {
  std::vector<size_t> visits;    // the blocks that a step gathers, in order
  int64_t kept_inputs = 0;       // of one micro-batch
  int64_t kept_input_bytes = 0;  // of one of them, as far as known
  int64_t activation_bytes = 0;  // as far as known
};

// Of the plan's rank on a device of this type; what blocks hold is not known here. Throws an Error
// as check_sizes.
MemoryPlan plan_memory(const UnitPlan& plan, const configs::Config& config,
                       torch::DeviceType device, const StepOutline& step);

}  // namespace zeroth::zero
