// What a rank keeps between uses: where, of which type, and through which memory it comes and goes.
// Reckoned from the units and the configuration alone, and read by all who allocate, count or
// measure. Pure arithmetic; which of two updaters is the faster one is left to a measurement.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "configs/config.h"
#include "optim/update_rule.h"
#include "zero/unit.h"

namespace zeroth::zero {

// The optimizer's arrays, each with an element for every trained one.
struct UpdateArrays {
  int64_t states = 0;
  torch::Dtype state = torch::kFloat;
  std::optional<torch::Dtype> master = {};  // none: the parameters are the master
  bool read_twice = false;                  // by a norm pass, too

  int64_t count() const { return states + (master ? 1 : 0); }
  int64_t master_bytes() const;  // for one element, as those that follow
  int64_t state_bytes() const;   // of all states
};

// Of a rule on parameters of type `working`.
UpdateArrays update_arrays(const optim::UpdateRule& rule, torch::Dtype working);

// What rests away from the device, of one kind.
struct TensorOffload {
  bool any = false;          // there is some
  bool pinned = false;       // the host memory in which it rests, or the file's buffers
  int64_t tiles_in_use = 0;  // that one use takes at a time: one of each array
  int64_t depth = 0;         // tiles that are copied to the device ahead of their use
  int64_t tile_bytes = 0;    // of a tile on the device; 0: the host's memory is the device's
  int64_t buffers = 0;       // of host memory in front of a file; 0: there is none
  int64_t buffer_bytes = 0;  // no more than the largest share in the file needs

  // Tiles that the device's side borrows at a time at most: a use's buffers are left to the host.
  size_t leases() const;
};

struct OffloadPlan {
  // kCpu is host memory beside a GPU; where the CPU computes, its memory is the device's.
  using OffloadDevice = configs::OffloadDevice;
  // Elements of one rank's share; 0: nothing of this unit rests.
  struct ShardPlacement {
    int64_t elements = 0;
    OffloadDevice device = OffloadDevice::kNone;
  };
  struct UnitPlacement {
    ShardPlacement updates;  // masters and states: of what is trained
    ShardPlacement
        parameters;  // of what is released between uses; the rest of them is whole on the device
  };
  std::vector<UnitPlacement> units;

  torch::Dtype working = torch::kFloat;   // of parameters
  torch::Dtype wire = torch::kFloat;      // of gradients on their way between ranks
  torch::Dtype gradient = torch::kFloat;  // of gradients until the update
  UpdateArrays arrays;

  TensorOffload updates;
  TensorOffload parameters;
  int64_t param_buffer_elements = 0;  // of the largest share of these in a file
  int64_t tile_elements = 0;          // of `updates`, where they come by tiles
  int64_t max_updated_elements = 0;   // elements of the largest share of these
  enum class OptimizerDevice {
    kDevice,
    kCpu,
    kMeasured
  };  // the last: of the others the faster one
  OptimizerDevice optimizer_device = OptimizerDevice::kDevice;  // of what rests away
  bool offload_gradients = false;             // on the host, which is then not the device
  bool link_pinned = false;                   // host memory through which they pass
  OffloadDevice host = OffloadDevice::kNone;  // its memory: kDevice where it is the device's
  bool overlaps_step = false;  // a GPU updates beside the forward pass what rests on it, too

  bool needs_link() const {
    return host == OffloadDevice::kCpu && (updates.any || parameters.any || overlaps_step);
  }
  bool update_before_use() const { return updates.any || parameters.buffers > 0 || overlaps_step; }
};

// `plan`: with its units' retention. `apart`: the host's memory is not the device's. Throws an
// Error that names the key and the smallest value that works when a buffer is too small.
OffloadPlan plan_offload(const UnitPlan& plan, const configs::Config& config, bool separate_device);

}  // namespace zeroth::zero
