#include "zero/rest_plan.h"

#include <algorithm>

#include "base/error.h"
#include "offload/file_lane.h"
#include "offload/shard_store.h"
#include "zero/dtype.h"

namespace zeroth::zero {
namespace {

using offload::on_file;
using Place = RestPlan::Place;
using Rest = RestPlan::Rest;
using UnitRest = RestPlan::UnitRest;
using Updater = RestPlan::Updater;

// Read ahead of an update and written behind it: long enough for a disk's full rate.
constexpr int64_t kFileTile = int64_t{4} << 20;
constexpr int64_t kWidest = sizeof(float);
// Tiles of host memory that a GPU updates are copied to it so many uses ahead: beside a block's
// work the link brings several. A file is slower.
constexpr int64_t kUsesAhead = 4;

class RestPlanner {
 public:
  RestPlanner(const UnitPlan& plan, const configs::Config& config, bool apart)
      : zero_(config.zero), apart_(apart) {
    for (const Unit& unit : plan.units) {
      const int64_t share = unit.share().size();
      rest_.units.push_back({.updates = {.elements = unit.trainable ? share : 0},
                             .parameters = {.elements = unit.released() ? share : 0}});
    }
    rest_.working = dtype_of(config.precision);
    rest_.wire = wire_dtype(config);
    rest_.gradient = gradient_dtype(config);
    rest_.arrays =
        update_arrays(*optim::make_update_rule(config.optimizer, torch::kCPU), rest_.working);
    rest_.host = resolved(Place::kCpu);
    rest_.overlaps_step = apart_ && zero_.overlap_step;
  }

  RestPlan make() {
    place();
    plan_updates();
    plan_parameters();
    rest_.link_pinned = apart_ && ((rest_.updates.any && zero_.offload_optimizer.pin_memory) ||
                                   (rest_.parameters.any && zero_.offload_param.pin_memory));
    return std::move(rest_);
  }

 private:
  using Kind = Rest UnitRest::*;

  Place resolved(Place place) const {
    return place == Place::kCpu && !apart_ ? Place::kDevice : place;
  }

  // `first` for the units in forward order that hold at most `elements` together, `later` for those
  // behind them.
  void split(Kind kind, double elements, Place first, Place later) {
    double sum = 0;
    for (UnitRest& unit : rest_.units) {
      sum += static_cast<double>((unit.*kind).elements);
      if ((unit.*kind).elements == 0) continue;
      (unit.*kind).place = resolved(sum <= elements ? first : later);
    }
  }

  void place() {
    double all = 0;
    for (const UnitRest& unit : rest_.units) all += static_cast<double>(unit.updates.elements);
    split(&UnitRest::updates, (1 - zero_.offload_optimizer.ratio) * all, Place::kDevice,
          zero_.offload_optimizer.device);
    const configs::OffloadParamConfig& params = zero_.offload_param;
    const bool file = params.device == Place::kNvme;
    split(&UnitRest::parameters, file ? static_cast<double>(params.max_in_cpu_elements) : 0,
          file ? Place::kCpu : params.device, params.device);
  }

  bool any_away(Kind kind) const {
    return std::any_of(rest_.units.begin(), rest_.units.end(),
                       [&](const UnitRest& unit) { return (unit.*kind).place != Place::kDevice; });
  }

  // Elements of the largest share, of those in a file or of all.
  int64_t largest(Kind kind, bool in_file) const {
    int64_t largest = 0;
    for (const UnitRest& unit : rest_.units) {
      const Rest& rest = unit.*kind;
      if (!in_file || rest.place == Place::kNvme) largest = std::max(largest, rest.elements);
    }
    return largest;
  }

  void plan_updates() {
    const int64_t limit = std::min(zero_.sub_group_size_elements, kFileTile);
    rest_.tile_elements = std::max(limit / offload::kTileGrid, int64_t{1}) * offload::kTileGrid;
    rest_.most_updated = largest(&UnitRest::updates, /*in_file=*/false);
    const UpdateArrays& arrays = rest_.arrays;
    AwayPlan& away = rest_.updates;
    // fp32 SGD without momentum has nothing to rest.
    away.any = arrays.count() > 0 && any_away(&UnitRest::updates);
    if (!away.any) return;
    away.tiles_in_use = away.depth = arrays.count();
    if (apart_) plan_landing();
    const int64_t elements = largest(&UnitRest::updates, /*in_file=*/true);
    if (elements == 0) {
      if (apart_ && rest_.updater != Updater::kHost) away.depth *= kUsesAhead;
      return;
    }
    away.buffers = zero_.offload_optimizer.buffer_count * arrays.count();
    const int64_t width =
        std::max(arrays.master_bytes(), arrays.states > 0 ? width_of(arrays.state) : 0);
    away.buffer_bytes = std::min(on_file(std::min(rest_.tile_elements, elements) * kWidest),
                                 on_file(elements * width));
  }

  // Beside a GPU, which sends gradients and, if it updates, takes tiles of states.
  void plan_landing() {
    using Step = configs::OffloadOptimizerConfig::Step;
    const Step step = zero_.offload_optimizer.step;
    rest_.gradients_land = true;
    rest_.updater = step == Step::kAuto  ? Updater::kMeasured
                    : step == Step::kCpu ? Updater::kHost
                                         : Updater::kDevice;
    // What the host alone works on is not page-locked. Where a measurement is to tell, it is
    // planned as if it were copied.
    rest_.updates.pinned = zero_.offload_optimizer.pin_memory && rest_.updater != Updater::kHost;
    rest_.updates.tile_bytes = std::min(rest_.tile_elements, rest_.most_updated) * kWidest;
  }

  void plan_parameters() {
    const configs::OffloadParamConfig& offload = zero_.offload_param;
    AwayPlan& away = rest_.parameters;
    away.any = any_away(&UnitRest::parameters);
    if (!away.any) return;
    const int64_t width = width_of(rest_.working);
    away.pinned = apart_ && offload.pin_memory;
    away.tiles_in_use = away.depth = 1;
    if (apart_) away.tile_bytes = largest(&UnitRest::parameters, /*in_file=*/false) * width;
    const int64_t elements = largest(&UnitRest::parameters, /*in_file=*/true);
    if (elements == 0) return;
    if (offload.buffer_size_elements < elements) {
      throw Error(
          "zero_optimization.offload_param.buffer_size is {}, but the largest shard of parameters "
          "has {} elements: the smallest value that works is {}",
          offload.buffer_size_elements, elements, elements);
    }
    rest_.param_buffer_elements = elements;
    away.buffers = offload.buffer_count;
    away.buffer_bytes = on_file(elements * width);
  }

  const configs::ZeroConfig& zero_;
  bool apart_;
  RestPlan rest_;
};

}  // namespace

UpdateArrays update_arrays(const optim::UpdateRule& rule, torch::Dtype working) {
  UpdateArrays arrays{.states = static_cast<int64_t>(rule.state_names().size()),
                      .state = rule.state_dtype(),
                      .read_twice = rule.norm_pass() != nullptr};
  if (rule.master_dtype() != working) arrays.master = rule.master_dtype();
  return arrays;
}

int64_t UpdateArrays::master_bytes() const {
  return master ? width_of(*master) : 0;
}

int64_t UpdateArrays::state_bytes() const {
  return states * width_of(state);
}

size_t AwayPlan::leases() const {
  return buffers > 0 ? static_cast<size_t>(buffers - tiles_in_use) : SIZE_MAX;
}

RestPlan plan_rest(const UnitPlan& plan, const configs::Config& config, bool apart) {
  return RestPlanner(plan, config, apart).make();
}

}  // namespace zeroth::zero
