#include "zero/rests.h"

#include <algorithm>

#include "base/error.h"
#include "offload/file_store.h"
#include "zero/dtype.h"
#include "zero/resting_places.h"

namespace zeroth::zero {
namespace {

using configs::RestingPlace;

// Read ahead of an update and written behind it: long enough for a disk's full rate.
constexpr int64_t kFileTile = int64_t{4} << 20;

int64_t round_up(int64_t value, int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

offload::SwapPlace swap_place(const comm::Mesh& mesh, const std::string& folder, const char* kind) {
  return {.nvme_path = folder, .run_id = mesh.run_id(), .rank = mesh.rank(), .kind = kind};
}

int64_t count_arrays(const configs::Config& config, const optim::UpdateRule& rule) {
  const bool has_master = rule.master_dtype() != dtype_of(config.precision);
  return static_cast<int64_t>(rule.state_names().size()) + (has_master ? 1 : 0);
}

class Maker {
 public:
  Maker(const UnitPlan& plan, const configs::Config& config, const comm::Mesh& mesh,
        const std::vector<Retention>& retention)
      : config_(config), mesh_(mesh), places_(resting_places(plan, config.zero, retention)) {}

  Rests make() {
    place_updates();
    place_params();
    return std::move(rests_);
  }

 private:
  offload::ShardStore* add(std::unique_ptr<offload::ShardStore> store) {
    rests_.stores.push_back(std::move(store));
    return rests_.stores.back().get();
  }

  offload::ShardStore* file_of_states(const optim::UpdateRule& rule) {
    const auto& offload = config_.zero.offload_optimizer;
    const FileTiles tiles = optimizer_tiles(config_.zero, places_.largest_update_in_file(),
                                            count_arrays(config_, rule));
    rests_.options.tile_elements = tiles.elements;
    rests_.options.before_use = true;
    return add(offload::make_file_store({.place = swap_place(mesh_, offload.nvme_path, "optimizer"),
                                         .aio = config_.aio,
                                         .buffers = static_cast<size_t>(tiles.buffers),
                                         .buffer_bytes = tiles.buffer_bytes,
                                         .pipeline_read = offload.pipeline_read,
                                         .pipeline_write = offload.pipeline_write}));
  }

  void place_updates() {
    rests_.options = {.tile_elements = config_.zero.sub_group_size_elements,
                      .decay_vectors = !config_.optimizer.no_decay};
    rests_.rules.push_back(optim::make_update_rule(config_.optimizer, mesh_.device()));
    const optim::UpdateRule* rule = rests_.rules.back().get();
    const UpdatePlace here = {add(offload::make_memory_store(mesh_.device())), rule,
                              mesh_.device()};
    rests_.updates.assign(places_.updates.size(), here);
    // fp32 SGD without momentum has nothing to rest.
    if (places_.largest_update_in_file() == 0 || count_arrays(config_, *rule) == 0) return;
    const UpdatePlace away = {file_of_states(*rule), rule, mesh_.device()};
    for (size_t unit = 0; unit < places_.updates.size(); ++unit) {
      if (places_.updates[unit] == RestingPlace::kNvme) rests_.updates[unit] = away;
    }
  }

  void place_params() {
    const configs::OffloadParamConfig& offload = config_.zero.offload_param;
    if (places_.largest_parameters_in_file() == 0) return;
    const FileTiles tiles =
        parameter_tiles(offload, places_.largest_parameters_in_file(),
                        static_cast<int64_t>(c10::elementSize(dtype_of(config_.precision))));
    rests_.max_param_reads = static_cast<size_t>(tiles.buffers - 1);  // one is for an update
    rests_.params.assign(places_.parameters.size(),
                         add(offload::make_memory_store(mesh_.device())));
    offload::ShardStore* file =
        add(offload::make_file_store({.place = swap_place(mesh_, offload.nvme_path, "parameters"),
                                      .aio = config_.aio,
                                      .buffers = static_cast<size_t>(tiles.buffers),
                                      .buffer_bytes = tiles.buffer_bytes,
                                      .pipeline_read = true,
                                      .pipeline_write = true}));
    for (size_t unit = 0; unit < places_.parameters.size(); ++unit) {
      if (places_.parameters[unit] == RestingPlace::kNvme) rests_.params[unit] = file;
    }
  }

  const configs::Config& config_;
  const comm::Mesh& mesh_;
  RestingPlaces places_;
  Rests rests_;
};

}  // namespace

FileTiles optimizer_tiles(const configs::ZeroConfig& zero, int64_t largest, int64_t arrays) {
  const int64_t limit = std::min(zero.sub_group_size_elements, kFileTile);
  FileTiles tiles;
  tiles.elements = std::max(limit / offload::kTileGrid, int64_t{1}) * offload::kTileGrid;
  tiles.buffers = zero.offload_optimizer.buffer_count * arrays;
  tiles.buffer_bytes = round_up(
      std::min(tiles.elements, largest) * static_cast<int64_t>(sizeof(float)), offload::kTileGrid);
  return tiles;
}

FileTiles parameter_tiles(const configs::OffloadParamConfig& config, int64_t largest,
                          int64_t element_size) {
  if (config.buffer_size_elements < largest) {
    throw Error(
        "zero_optimization.offload_param.buffer_size is {}, but the largest shard of parameters "
        "has {} elements: the smallest value that works is {}",
        config.buffer_size_elements, largest, largest);
  }
  return {.elements = largest,
          .buffers = config.buffer_count,
          .buffer_bytes = round_up(largest * element_size, offload::kTileGrid)};
}

offload::Traffic Rests::traffic() const {
  offload::Traffic sum;
  for (const auto& store : stores) sum += store->traffic();
  return sum;
}

Rests make_rests(const UnitPlan& plan, const configs::Config& config, const comm::Mesh& mesh,
                 const std::vector<Retention>& retention) {
  return Maker(plan, config, mesh, retention).make();
}

}  // namespace zeroth::zero
