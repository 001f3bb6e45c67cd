#include "zero/offload_plan.h"

#include <algorithm>

#include "base/error.h"
#include "offload/io_worker.h"
#include "offload/shard_store.h"
#include "zero/unit.h"

namespace zeroth::zero {
namespace {

using offload::file_aligned;
using OffloadDevice = OffloadPlan::OffloadDevice;
using ShardPlacement = OffloadPlan::ShardPlacement;
using UnitPlacement = OffloadPlan::UnitPlacement;
using OptimizerDevice = OffloadPlan::OptimizerDevice;

// Elements of a read or write of a file around an update: enough for a disk's full rate.
constexpr int64_t kFileTile = int64_t{4} << 20;
constexpr int64_t kMaxElementBytes = sizeof(float);
// Number of uses by which a GPU's copies of CPU memory run ahead: the link copies several chunks
// during a block's work. A file is slower.
constexpr int64_t kPrefetchUses = 4;

class OffloadPlanner {
 public:
  OffloadPlanner(const UnitPlan& plan, const configs::Config& config, bool separate_device)
      : zero_(config.zero), separate_device_(separate_device) {
    plan_.working = working_dtype(config);
    const int64_t width = element_bytes(plan_.working);
    for (const Unit& unit : plan.units) {
      const int64_t owned_range = unit.owned_range().size();
      const int64_t bytes = owned_range * element_bytes(unit.dtype(plan_.working));
      plan_.units.push_back(
          {.updates = {.elements = unit.trainable ? owned_range : 0},
           .parameters = {.elements = unit.is_gathered_before_use() ? bytes / width : 0},
           .coded = unit.coded,
           .arrays = arrays_of(unit_optimizer(config.optimizer, unit.coded))});
    }
    plan_.wire = wire_dtype(config);
    plan_.gradient = gradient_dtype(config);
    plan_.arrays = arrays_of(config.optimizer);
    plan_.host = resolve(OffloadDevice::kCpu);
    plan_.overlaps_step = separate_device_ && zero_.overlap_step;
  }

  OffloadPlan make() {
    place_shards();
    plan_updates();
    plan_parameters();
    plan_.link_pinned =
        separate_device_ && ((plan_.updates.any && zero_.offload_optimizer.pin_memory) ||
                             (plan_.parameters.any && zero_.offload_param.pin_memory));
    return std::move(plan_);
  }

 private:
  UpdateArrays arrays_of(const configs::OptimizerConfig& optimizer) const {
    return update_arrays(*optim::make_update_rule(optimizer, torch::kCPU), plan_.working);
  }

  using PlacementField = ShardPlacement UnitPlacement::*;

  OffloadDevice resolve(OffloadDevice device) const {
    return device == OffloadDevice::kCpu && !separate_device_ ? OffloadDevice::kNone : device;
  }

  // Places units on `first`, in forward order, as long as they hold at most `elements` in total,
  // and the units after them on `later`.
  void split(PlacementField field, double elements, OffloadDevice first, OffloadDevice later) {
    double sum = 0;
    for (UnitPlacement& unit : plan_.units) {
      sum += static_cast<double>((unit.*field).elements);
      if ((unit.*field).elements == 0) continue;
      (unit.*field).device = resolve(sum <= elements ? first : later);
    }
  }

  void place_shards() {
    double all = 0;
    for (const UnitPlacement& unit : plan_.units) all += static_cast<double>(unit.updates.elements);
    split(&UnitPlacement::updates, (1 - zero_.offload_optimizer.ratio) * all, OffloadDevice::kNone,
          zero_.offload_optimizer.device);
    const configs::OffloadParamConfig& params = zero_.offload_param;
    const bool file = params.device == OffloadDevice::kNvme;
    split(&UnitPlacement::parameters, file ? static_cast<double>(params.max_in_cpu_elements) : 0,
          file ? OffloadDevice::kCpu : params.device, params.device);
  }

  bool any_offloaded(PlacementField field) const {
    return std::ranges::any_of(plan_.units, [&](const UnitPlacement& unit) {
      return (unit.*field).device != OffloadDevice::kNone;
    });
  }

  // Returns the elements of the largest range, of those in a file or of all.
  int64_t largest(PlacementField field, bool in_file) const {
    int64_t largest = 0;
    for (const UnitPlacement& unit : plan_.units) {
      const ShardPlacement& placement = unit.*field;
      if (!in_file || placement.device == OffloadDevice::kNvme)
        largest = std::max(largest, placement.elements);
    }
    return largest;
  }

  // Returns the bytes of the largest array of masters and states in a file.
  int64_t largest_array_in_file() const {
    int64_t bytes = 0;
    for (const UnitPlacement& unit : plan_.units) {
      if (unit.updates.device != OffloadDevice::kNvme) continue;
      bytes = std::max(bytes, unit.arrays.largest_bytes(unit.updates.elements));
    }
    return bytes;
  }

  void plan_updates() {
    const int64_t limit = std::min(zero_.sub_group_size_elements, kFileTile);
    // Tiles of every array are aligned to its entries.
    int64_t alignment = offload::kChunkAlignment;
    for (const auto& state : plan_.arrays.states) {
      alignment = std::max(alignment, offload::kChunkAlignment * state.block);
    }
    plan_.tile_elements = std::max(limit / alignment, int64_t{1}) * alignment;
    plan_.max_updated_elements = largest(&UnitPlacement::updates, /*in_file=*/false);
    const UpdateArrays& arrays = plan_.arrays;
    TensorOffload& offloaded = plan_.updates;
    // fp32 SGD without momentum has nothing to offload.
    offloaded.any = arrays.count() > 0 && any_offloaded(&UnitPlacement::updates);
    if (!offloaded.any) return;
    offloaded.tiles_in_use = offloaded.depth = arrays.count();
    if (separate_device_) plan_gradient_offload();
    const int64_t elements = largest(&UnitPlacement::updates, /*in_file=*/true);
    if (elements == 0) {
      if (separate_device_ && plan_.optimizer_device != OptimizerDevice::kCpu)
        offloaded.depth *= kPrefetchUses;
      return;
    }
    offloaded.buffers = zero_.offload_optimizer.buffer_count * arrays.count();
    offloaded.buffer_bytes =
        std::min(file_aligned(std::min(plan_.tile_elements, elements) * kMaxElementBytes),
                 file_aligned(largest_array_in_file()));
  }

  // Plans the offload beside a GPU, which sends gradients and, if it updates, copies tiles of
  // states.
  void plan_gradient_offload() {
    plan_.offload_gradients = true;
    plan_.optimizer_device = zero_.offload_optimizer.step;
    // Values that only the CPU uses are not pinned. If a measurement will decide, plan them as if
    // they were copied.
    plan_.updates.pinned =
        zero_.offload_optimizer.pin_memory && plan_.optimizer_device != OptimizerDevice::kCpu;
    plan_.updates.tile_bytes =
        std::min(plan_.tile_elements, plan_.max_updated_elements) * kMaxElementBytes;
  }

  void plan_parameters() {
    const configs::OffloadParamConfig& offload = zero_.offload_param;
    TensorOffload& offloaded = plan_.parameters;
    offloaded.any = any_offloaded(&UnitPlacement::parameters);
    if (!offloaded.any) return;
    const int64_t width = element_bytes(plan_.working);
    offloaded.pinned = separate_device_ && offload.pin_memory;
    offloaded.tiles_in_use = offloaded.depth = 1;
    if (separate_device_)
      offloaded.tile_bytes = largest(&UnitPlacement::parameters, /*in_file=*/false) * width;
    const int64_t elements = largest(&UnitPlacement::parameters, /*in_file=*/true);
    if (elements == 0) return;
    if (offload.buffer_size_elements < elements) {
      throw Error(
          "zero_optimization.offload_param.buffer_size is {}, but the largest shard of parameters "
          "has {} elements: the smallest value that works is {}",
          offload.buffer_size_elements, elements, elements);
    }
    plan_.param_buffer_elements = elements;
    offloaded.buffers = offload.buffer_count;
    offloaded.buffer_bytes = file_aligned(elements * width);
  }

  const configs::ZeroConfig& zero_;
  bool separate_device_;
  OffloadPlan plan_;
};

}  // namespace

int64_t UpdateArrays::state_bytes(int64_t elements) const {
  int64_t bytes = 0;
  for (const auto& state : states) bytes += state.entries(elements) * element_bytes(state.dtype);
  return bytes;
}

int64_t UpdateArrays::largest_bytes(int64_t elements) const {
  int64_t bytes = elements * master_bytes();
  for (const auto& state : states) {
    bytes = std::max(bytes, state.entries(elements) * element_bytes(state.dtype));
  }
  return bytes;
}

configs::OptimizerConfig unit_optimizer(const configs::OptimizerConfig& optimizer, bool coded) {
  return coded ? optimizer : optimizer.with_fp32_states();
}

UpdateArrays update_arrays(const optim::UpdateRule& rule, torch::Dtype working) {
  UpdateArrays arrays{.states = rule.state_arrays(), .read_twice = rule.norm_pass() != nullptr};
  if (rule.master_dtype() != working) arrays.master = rule.master_dtype();
  return arrays;
}

bool offloads_parameters(const configs::Config& config, bool separate_device) {
  const OffloadDevice device = config.zero.offload_param.device;
  return device == OffloadDevice::kNvme || (device == OffloadDevice::kCpu && separate_device);
}

OffloadPlan plan_offload(const UnitPlan& plan, const configs::Config& config,
                         bool separate_device) {
  return OffloadPlanner(plan, config, separate_device).make();
}

}  // namespace zeroth::zero
