#include "zero/rests.h"

#include <algorithm>
#include <map>
#include <utility>

#include "base/error.h"
#include "offload/file_lane.h"
#include "offload/file_store.h"
#include "offload/staging_store.h"
#include "zero/dtype.h"
#include "zero/resting_places.h"
#include "zero/updater.h"

namespace zeroth::zero {
namespace {

using configs::RestingPlace;

// Read ahead of an update and written behind it: long enough for a disk's full rate.
constexpr int64_t kFileTile = int64_t{4} << 20;

int64_t on_file(int64_t bytes) {
  return static_cast<int64_t>(offload::on_file(static_cast<uint64_t>(bytes)));
}

offload::SwapPlace swap_place(const comm::Mesh& mesh, const std::string& folder, const char* kind) {
  return {.nvme_path = folder, .run_id = mesh.run_id(), .rank = mesh.rank(), .kind = kind};
}

int64_t count_arrays(const configs::Config& config, const optim::UpdateRule& rule) {
  return static_cast<int64_t>(rule.state_names().size()) + (has_master(config, rule) ? 1 : 0);
}

class Maker {
 public:
  Maker(const UnitPlan& plan, const configs::Config& config, const comm::Mesh& mesh)
      : config_(config), mesh_(mesh), places_(resting_places(plan, config.zero)) {}

  Rests make(std::shared_ptr<device::HostLink> link) {
    rests_.link = std::move(link);
    if (rests_.link) {
      // On the CPU, as in tests, tensors do not tell on which side they are.
      rests_.staging = std::make_shared<offload::Staging>(rests_.link, mesh_.device(), /*slots=*/2,
                                                          /*always=*/mesh_.device().is_cpu());
    }
    place_updates();
    place_params();
    return std::move(rests_);
  }

 private:
  offload::ShardStore* add(std::unique_ptr<offload::ShardStore> store) {
    rests_.stores.push_back(std::move(store));
    return rests_.stores.back().get();
  }

  // Whether that is another place than the device's memory.
  bool away(RestingPlace place) const {
    return place == RestingPlace::kNvme || (place == RestingPlace::kCpu && rests_.link);
  }

  std::unique_ptr<offload::ShardStore> file_of_states(const FileTiles& tiles,
                                                      std::shared_ptr<device::HostLink> link) {
    const auto& offload = config_.zero.offload_optimizer;
    return offload::make_file_store({.place = swap_place(mesh_, offload.nvme_path, "optimizer"),
                                     .aio = config_.aio,
                                     .buffers = static_cast<size_t>(tiles.buffers),
                                     .buffer_bytes = tiles.buffer_bytes,
                                     .pipeline_read = offload.pipeline_read,
                                     .pipeline_write = offload.pipeline_write,
                                     .link = std::move(link)});
  }

  void place_updates() {
    rests_.options = {.tile_elements = config_.zero.sub_group_size_elements,
                      .decay_vectors = !config_.optimizer.no_decay,
                      .staging = rests_.staging};
    rests_.rules.push_back(optim::make_update_rule(config_.optimizer, mesh_.device()));
    const optim::UpdateRule* rule = rests_.rules.back().get();
    const UpdatePlace here = {add(offload::make_memory_store(mesh_.device())), rule,
                              mesh_.device()};
    rests_.updates.assign(places_.updates.size(), here);
    // fp32 SGD without momentum has nothing to rest.
    const int64_t arrays = count_arrays(config_, *rule);
    if (arrays == 0) return;
    std::map<RestingPlace, UpdatePlace> others;
    for (size_t unit = 0; unit < places_.updates.size(); ++unit) {
      const RestingPlace place = places_.updates[unit];
      if (!away(place)) continue;
      if (others.empty()) choose_updater(rule);
      if (!others.contains(place)) others[place] = update_away(place, arrays);
      rests_.updates[unit] = others[place];
    }
  }

  // Who updates what rests elsewhere, and so where gradients rest.
  void choose_updater(const optim::UpdateRule* on_device) {
    rests_.update_before_use = true;
    updater_ = {nullptr, on_device, mesh_.device()};
    if (!rests_.link) return;
    rests_.landing = std::make_shared<GradLanding>(rests_.link);
    if (updates_on_device(config_, mesh_, *rests_.link, rests_.choices)) return;
    rests_.rules.push_back(optim::make_update_rule(config_.optimizer, torch::kCPU));
    updater_ = {nullptr, rests_.rules.back().get(), torch::kCPU};
  }

  UpdatePlace update_away(RestingPlace place, int64_t arrays) {
    const bool in_file = place == RestingPlace::kNvme;
    const bool streams = rests_.link && updater_.device == mesh_.device();
    const FileTiles tiles = optimizer_tiles(config_.zero, places_.largest_update_in_file(), arrays);
    if (in_file || streams) rests_.options.tile_elements = tiles.elements;
    // What the host alone works on is not page-locked.
    const auto link = streams ? rests_.link : nullptr;
    auto store = in_file ? file_of_states(tiles, link) : offload::make_host_store(link);
    if (streams) {
      const auto depth = static_cast<size_t>(arrays);  // what one tile takes
      const auto lent = static_cast<size_t>(tiles.buffers) - depth;
      store = offload::make_staging_store(
          std::move(store), rests_.link, mesh_.device(),
          {.depth = depth, .inner_leases = in_file ? lent : SIZE_MAX, .expected = kReadWrite});
    }
    return {add(std::move(store)), updater_.rule, updater_.device};
  }

  void place_params() {
    const auto& places = places_.parameters;
    rests_.params.assign(places.size(), nullptr);
    std::map<RestingPlace, offload::ShardStore*> others;
    for (size_t unit = 0; unit < places.size(); ++unit) {
      if (!away(places[unit])) continue;
      if (!others.contains(places[unit])) others[places[unit]] = params_away(places[unit]);
      rests_.params[unit] = others[places[unit]];
    }
  }

  offload::ShardStore* params_away(RestingPlace place) {
    const configs::OffloadParamConfig& offload = config_.zero.offload_param;
    if (place == RestingPlace::kCpu) return add(for_device(offload::make_host_store(rests_.link)));
    const FileTiles tiles =
        parameter_tiles(offload, places_.largest_parameters_in_file(),
                        static_cast<int64_t>(c10::elementSize(dtype_of(config_.precision))));
    rests_.update_before_use = true;  // what an update writes is gathered without a read
    rests_.max_param_reads = static_cast<size_t>(tiles.buffers - 1);  // one is for an update
    auto file =
        offload::make_file_store({.place = swap_place(mesh_, offload.nvme_path, "parameters"),
                                  .aio = config_.aio,
                                  .buffers = static_cast<size_t>(tiles.buffers),
                                  .buffer_bytes = tiles.buffer_bytes,
                                  .pipeline_read = true,
                                  .pipeline_write = true,
                                  .link = rests_.link});
    return add(rests_.link ? for_device(std::move(file), rests_.max_param_reads) : std::move(file));
  }

  // Parameters for the device; the host writes them in place.
  std::unique_ptr<offload::ShardStore> for_device(std::unique_ptr<offload::ShardStore> inner,
                                                  size_t inner_leases = SIZE_MAX) {
    return offload::make_staging_store(
        std::move(inner), rests_.link, mesh_.device(),
        {.depth = 1, .inner_leases = inner_leases, .expected = offload::Access::kRead});
  }

  static constexpr offload::Access kReadWrite = offload::Access::kReadWrite;

  const configs::Config& config_;
  const comm::Mesh& mesh_;
  RestingPlaces places_;
  Rests rests_;
  UpdatePlace updater_;  // of what rests elsewhere; without a store
};

}  // namespace

FileTiles optimizer_tiles(const configs::ZeroConfig& zero, int64_t largest, int64_t arrays) {
  const int64_t limit = std::min(zero.sub_group_size_elements, kFileTile);
  FileTiles tiles;
  tiles.elements = std::max(limit / offload::kTileGrid, int64_t{1}) * offload::kTileGrid;
  tiles.buffers = zero.offload_optimizer.buffer_count * arrays;
  tiles.buffer_bytes =
      on_file(std::min(tiles.elements, largest) * static_cast<int64_t>(sizeof(float)));
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
          .buffer_bytes = on_file(largest * element_size)};
}

offload::Traffic Rests::traffic() const {
  offload::Traffic sum;
  for (const auto& store : stores) sum += store->traffic();
  if (!link || sum.bytes_read + sum.bytes_written > 0) return sum;
  const device::LinkUse use = link->copies->use();
  sum.bytes_read = use.bytes_to_device;
  sum.bytes_written = use.bytes_to_host;
  sum.reading_s = use.to_device_s;
  sum.writing_s = use.to_host_s;
  sum.under_way_s = std::max(use.to_device_s, use.to_host_s);
  sum.waited_s = use.waited_s;
  return sum;
}

std::vector<std::string> Rests::notes() const {
  std::vector<std::string> notes = choices;
  const auto add = [&](const std::vector<std::string>& more) {
    for (const std::string& note : more) {
      if (std::find(notes.begin(), notes.end(), note) == notes.end()) notes.push_back(note);
    }
  };
  if (link) add(link->memory.notes());
  for (const auto& store : stores) add(store->notes());
  return notes;
}

Rests make_rests(const UnitPlan& plan, const configs::Config& config, const comm::Mesh& mesh,
                 std::shared_ptr<device::HostLink> link) {
  return Maker(plan, config, mesh).make(std::move(link));
}

}  // namespace zeroth::zero
