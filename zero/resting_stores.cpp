#include "zero/resting_stores.h"

#include <algorithm>
#include <map>
#include <utility>

#include "offload/file_store.h"
#include "offload/staging_store.h"
#include "zero/updater.h"

namespace zeroth::zero {
namespace {

using offload::Access;
using Place = RestPlan::Place;

class Maker {
 public:
  Maker(const RestPlan& plan, const configs::Config& config, const comm::Mesh& mesh)
      : plan_(plan), config_(config), mesh_(mesh) {}

  RestingStores make(std::shared_ptr<device::HostLink> link) {
    made_.link = std::move(link);
    if (made_.link) {
      made_.staging = std::make_shared<offload::Staging>(made_.link, mesh_.device());
    }
    if (plan_.gradients_land) made_.landing = std::make_shared<GradLanding>(made_.link);
    place_updates();
    place_params();
    return std::move(made_);
  }

 private:
  offload::ShardStore* add(std::unique_ptr<offload::ShardStore> store) {
    made_.stores.push_back(std::move(store));
    return made_.stores.back().get();
  }

  // What no copy touches is not page-locked.
  std::shared_ptr<device::HostLink> locks(bool pinned) const {
    return pinned ? made_.link : nullptr;
  }

  offload::FileStoreOptions file_options(const char* kind, const std::string& folder,
                                         const AwayPlan& away, bool pinned) const {
    return {.place = {.nvme_path = folder,
                      .run_id = mesh_.run_id(),
                      .rank = mesh_.rank(),
                      .kind = kind},
            .aio = config_.aio,
            .buffers = static_cast<size_t>(away.buffers),
            .buffer_bytes = away.buffer_bytes,
            .link = locks(pinned)};
  }

  void place_updates() {
    made_.options = {.tile_elements = config_.zero.sub_group_size_elements,
                     .decay_vectors = !config_.optimizer.no_decay,
                     .staging = made_.staging};
    made_.rules.push_back(optim::make_update_rule(config_.optimizer, mesh_.device()));
    const UpdatePlace here = {add(offload::make_memory_store(mesh_.device())),
                              made_.rules.back().get(), mesh_.device()};
    made_.updates.assign(plan_.units.size(), here);
    if (!plan_.updates.any) return;
    const UpdatePlace away = update_away(here);
    for (size_t unit = 0; unit < plan_.units.size(); ++unit) {
      if (plan_.units[unit].updates.place != Place::kDevice) made_.updates[unit] = away;
    }
  }

  bool device_updates() {
    if (plan_.updater != RestPlan::Updater::kMeasured) {
      return plan_.updater == RestPlan::Updater::kDevice;
    }
    const offload::StepChoice choice = measure_updater(plan_, config_, mesh_, *made_.link);
    made_.choices.push_back(choice.why);
    using Step = configs::OffloadOptimizerConfig::Step;
    made_.measured_step = choice.on_device ? Step::kGpu : Step::kCpu;
    return choice.on_device;
  }

  UpdatePlace update_away(const UpdatePlace& here) {
    UpdatePlace away = here;
    const bool on_device = device_updates();
    if (!on_device) {
      made_.rules.push_back(optim::make_update_rule(config_.optimizer, torch::kCPU));
      away = {nullptr, made_.rules.back().get(), torch::kCPU};
    }
    const AwayPlan& updates = plan_.updates;
    const bool in_file = updates.buffers > 0;
    const bool streams = made_.link && on_device;
    if (in_file || streams) made_.options.tile_elements = plan_.tile_elements;
    const bool pinned = streams && updates.pinned;
    auto store = in_file ? file_of_states(pinned) : offload::make_host_store(locks(pinned));
    if (streams) {
      store = offload::make_staging_store(std::move(store), made_.link, mesh_.device(),
                                          {.depth = static_cast<size_t>(updates.depth),
                                           .inner_leases = updates.leases(),
                                           .expected = Access::kReadWrite});
    }
    away.states = add(std::move(store));
    return away;
  }

  std::unique_ptr<offload::ShardStore> file_of_states(bool pinned) const {
    const configs::OffloadOptimizerConfig& offload = config_.zero.offload_optimizer;
    offload::FileStoreOptions options =
        file_options("optimizer", offload.nvme_path, plan_.updates, pinned);
    options.pipeline_read = offload.pipeline_read;
    options.pipeline_write = offload.pipeline_write;
    return offload::make_file_store(std::move(options));
  }

  void place_params() {
    made_.params.assign(plan_.units.size(), nullptr);
    std::map<Place, offload::ShardStore*> away;
    for (size_t unit = 0; unit < plan_.units.size(); ++unit) {
      const Place place = plan_.units[unit].parameters.place;
      if (place == Place::kDevice) continue;
      if (!away.contains(place)) away[place] = params_away(place);
      made_.params[unit] = away[place];
    }
  }

  // Parameters for the device; the host writes them in place.
  offload::ShardStore* params_away(Place place) {
    const AwayPlan& params = plan_.parameters;
    const bool in_file = place == Place::kNvme;
    auto store =
        in_file ? offload::make_file_store(file_options(
                      "parameters", config_.zero.offload_param.nvme_path, params, params.pinned))
                : offload::make_host_store(locks(params.pinned));
    if (made_.link) {
      store = offload::make_staging_store(std::move(store), made_.link, mesh_.device(),
                                          {.depth = static_cast<size_t>(params.depth),
                                           .inner_leases = in_file ? params.leases() : SIZE_MAX,
                                           .expected = Access::kRead});
    }
    return add(std::move(store));
  }

  const RestPlan& plan_;
  const configs::Config& config_;
  const comm::Mesh& mesh_;
  RestingStores made_;
};

}  // namespace

offload::Traffic RestingStores::traffic() const {
  offload::Traffic sum;
  for (const auto& store : stores) sum += store->traffic();
  if (!link || sum.bytes_read + sum.bytes_written > 0) return sum;
  const device::LinkUse use = link->copies->use();
  sum.bytes_read = use.bytes_to_device;
  sum.bytes_written = use.bytes_to_host;
  sum.reading_s = use.to_device_s;
  sum.writing_s = use.to_host_s;
  sum.under_way_s = std::max(use.to_device_s, use.to_host_s);
  if (sum.under_way_s > 0) sum.waited_s = use.waited_s;  // else of updates alone
  return sum;
}

std::vector<std::string> RestingStores::notes() const {
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

RestingStores make_resting_stores(const RestPlan& plan, const configs::Config& config,
                                  const comm::Mesh& mesh, std::shared_ptr<device::HostLink> link) {
  return Maker(plan, config, mesh).make(std::move(link));
}

}  // namespace zeroth::zero
