// The plan of a rank's values between uses: device, dtype, and the memory they pass through.
// Computed from the units and the configuration alone; all code that allocates, counts or measures
// reads it. Pure arithmetic; a measurement chooses the faster of two optimizer devices.
#pragma once

#include <cstdint>
#include <iterator>
#include <optional>
#include <vector>

#include "configs/config.h"
#include "device/tensor.h"
#include "optim/update_rule.h"
#include "zero/dtype.h"

namespace zeroth::zero {

struct UnitPlan;

// The optimizer's arrays for trained elements.
struct UpdateArrays {
  std::vector<optim::UpdateRule::StateArray> states;
  std::optional<torch::Dtype> master = {};  // one per element; unset: the parameters are the master
  bool read_twice = false;                  // a norm pass reads them, too

  int64_t count() const { return std::ssize(states) + (master ? 1 : 0); }
  // Returns the bytes of the master for one element.
  int64_t master_bytes() const { return master ? element_bytes(*master) : 0; }
  // Return the bytes of all states, and of the largest array, for this many elements.
  int64_t state_bytes(int64_t elements) const;
  int64_t largest_bytes(int64_t elements) const;
};

// Returns the optimizer whose rule updates units with coded states, or without.
configs::OptimizerConfig unit_optimizer(const configs::OptimizerConfig& optimizer, bool coded);

// Returns the arrays of a rule on parameters of type `working`.
UpdateArrays update_arrays(const optim::UpdateRule& rule, torch::Dtype working);

// The offload of one kind of values.
struct TensorOffload {
  bool any = false;          // true if any values are offloaded
  bool pinned = false;       // true if their memory, or the file's buffers, are pinned
  int64_t tiles_in_use = 0;  // chunks that one use needs at a time: one of each array
  int64_t depth = 0;         // chunks that are prefetched to the device
  int64_t tile_bytes = 0;    // bytes of a chunk on the device; 0: no separate device
  int64_t buffers = 0;       // CPU buffers in front of a file; 0: no file
  int64_t buffer_bytes = 0;  // at most what the largest shard in the file needs

  // Returns the maximum number of chunks that the device's side leases at a time: the buffers of
  // one use are left to the CPU.
  size_t leases() const {
    return buffers > 0 ? static_cast<size_t>(buffers - tiles_in_use) : SIZE_MAX;
  }
};

struct OffloadPlan {
  // kCpu is CPU memory beside a GPU; if the CPU computes, its memory is the device's (kNone).
  using OffloadDevice = configs::OffloadDevice;
  // Elements of one rank's range; 0: nothing of this unit is offloadable.
  struct ShardPlacement {
    int64_t elements = 0;
    OffloadDevice device = OffloadDevice::kNone;
  };
  struct UnitPlacement {
    ShardPlacement updates;  // masters and states of trained elements
    // Released between uses; other parameters are kept in full on the device. Bytes of quantized
    // weights count as the elements of working precision that would take as much memory.
    ShardPlacement parameters;
    bool coded = false;        // as Unit::coded
    UpdateArrays arrays = {};  // of `updates`
  };
  std::vector<UnitPlacement> units;

  torch::Dtype working = torch::kFloat;   // dtype of parameters
  torch::Dtype wire = torch::kFloat;      // dtype of gradients in communication
  torch::Dtype gradient = torch::kFloat;  // dtype of gradients until the update
  UpdateArrays arrays;                    // of most elements: no unit has more

  TensorOffload updates;
  TensorOffload parameters;
  int64_t param_buffer_elements = 0;  // elements of the largest parameter shard in a file
  int64_t tile_elements = 0;          // elements of a tile of `updates`
  int64_t max_updated_elements = 0;   // elements of the largest updated range
  using OptimizerDevice = configs::OffloadOptimizerConfig::UpdateDevice;
  // Updates offloaded values: kGpu is the device, kAuto the faster of the two, by measurement.
  OptimizerDevice optimizer_device = OptimizerDevice::kGpu;
  bool offload_gradients = false;             // gradients go to the CPU, which is not the device
  bool link_pinned = false;                   // pins the CPU memory of copies
  OffloadDevice host = OffloadDevice::kNone;  // CPU memory; kNone if the CPU is the device
  bool overlaps_step = false;  // a GPU's updates of values on it overlap with forward, too

  bool needs_link() const {
    return host == OffloadDevice::kCpu && (updates.any || parameters.any || overlaps_step);
  }
  bool update_before_use() const { return updates.any || parameters.buffers > 0 || overlaps_step; }
};

// Returns whether parameters are offloaded, from the device that computes to CPU memory or a file.
bool offloads_parameters(const configs::Config& config, bool separate_device);

// Makes the plan. `plan` has its units' gather policies. `separate_device`: CPU memory is not the
// device's. Throws an Error that names the key and the smallest valid value if a buffer is too
// small.
OffloadPlan plan_offload(const UnitPlan& plan, const configs::Config& config, bool separate_device);

}  // namespace zeroth::zero
