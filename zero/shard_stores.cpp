#include "zero/shard_stores.h"

#include <algorithm>
#include <map>
#include <utility>

#include "offload/file_store.h"
#include "offload/staging.h"
#include "zero/gradient_offload.h"
#include "zero/offload_plan.h"
#include "zero/optimizer_device.h"

namespace zeroth::zero {
namespace {

using offload::Access;
using OffloadDevice = OffloadPlan::OffloadDevice;

class StoreBuilder {
 public:
  StoreBuilder(const OffloadPlan& plan, const configs::Config& config, const comm::DeviceMesh& mesh)
      : plan_(plan), config_(config), mesh_(mesh) {}

  ShardStores make(std::shared_ptr<device::HostLink> link) {
    result_.link = std::move(link);
    if (result_.link) {
      result_.staging = std::make_shared<offload::Staging>(result_.link, mesh_.device());
    }
    if (plan_.offload_gradients)
      result_.gradient_offload = std::make_shared<GradientOffload>(result_.link);
    place_optimizer();
    place_params();
    return std::move(result_);
  }

 private:
  offload::ShardStore* add(std::unique_ptr<offload::ShardStore> store) {
    result_.stores.push_back(std::move(store));
    return result_.stores.back().get();
  }

  // Memory without copies is not pinned.
  std::shared_ptr<device::HostLink> page_lock_link(bool pinned) const {
    return pinned ? result_.link : nullptr;
  }

  offload::FileStoreOptions file_options(const char* kind, const std::string& directory,
                                         const TensorOffload& offloaded, bool pinned) const {
    return {.place = {.nvme_path = directory,
                      .run_id = mesh_.run_id(),
                      .rank = mesh_.rank(),
                      .kind = kind},
            .aio = config_.aio,
            .buffers = static_cast<size_t>(offloaded.buffers),
            .buffer_bytes = offloaded.buffer_bytes,
            .link = page_lock_link(pinned)};
  }

  void place_optimizer() {
    result_.options = {.tile_elements = config_.zero.sub_group_size_elements,
                       .decay_vectors = !config_.optimizer.no_decay,
                       .staging = result_.staging};
    result_.rules.push_back(optim::make_update_rule(config_.optimizer, mesh_.device()));
    const OptimizerPlacement here = {add(offload::make_memory_store(mesh_.device())),
                                     result_.rules.back().get(), mesh_.device()};
    result_.updates.assign(plan_.units.size(), here);
    if (!plan_.updates.any) return;
    const OptimizerPlacement offloaded = offloaded_placement(here);
    for (size_t unit = 0; unit < plan_.units.size(); ++unit) {
      if (plan_.units[unit].updates.device != OffloadDevice::kNone)
        result_.updates[unit] = offloaded;
    }
  }

  bool updates_on_device() {
    using OptimizerDevice = OffloadPlan::OptimizerDevice;
    if (plan_.optimizer_device != OptimizerDevice::kAuto) {
      return plan_.optimizer_device == OptimizerDevice::kGpu;
    }
    const OptimizerDeviceChoice choice =
        measure_optimizer_device(plan_, config_, mesh_, *result_.link);
    result_.choices.push_back(choice.why);
    result_.measured_step = choice.on_device ? OptimizerDevice::kGpu : OptimizerDevice::kCpu;
    return choice.on_device;
  }

  OptimizerPlacement offloaded_placement(const OptimizerPlacement& here) {
    OptimizerPlacement offloaded = here;
    const bool on_device = updates_on_device();
    if (!on_device) {
      result_.rules.push_back(optim::make_update_rule(config_.optimizer, torch::kCPU));
      offloaded = {nullptr, result_.rules.back().get(), torch::kCPU};
    }
    const TensorOffload& updates = plan_.updates;
    const bool in_file = updates.buffers > 0;
    const bool streams = result_.link && on_device;
    if (in_file || streams) result_.options.tile_elements = plan_.tile_elements;
    const bool pinned = streams && updates.pinned;
    auto store =
        in_file ? state_file_store(pinned) : offload::make_cpu_store(page_lock_link(pinned));
    if (streams) {
      store = offload::make_staging_store(std::move(store), result_.link, mesh_.device(),
                                          {.depth = static_cast<size_t>(updates.depth),
                                           .inner_leases = updates.leases(),
                                           .expected = Access::kReadWrite});
    }
    offloaded.states = add(std::move(store));
    return offloaded;
  }

  std::unique_ptr<offload::ShardStore> state_file_store(bool pinned) const {
    const configs::OffloadOptimizerConfig& offload = config_.zero.offload_optimizer;
    offload::FileStoreOptions options =
        file_options("optimizer", offload.nvme_path, plan_.updates, pinned);
    options.pipeline_read = offload.pipeline_read;
    options.pipeline_write = offload.pipeline_write;
    return offload::make_file_store(std::move(options));
  }

  void place_params() {
    result_.params.assign(plan_.units.size(), nullptr);
    std::map<OffloadDevice, offload::ShardStore*> offloaded;
    for (size_t unit = 0; unit < plan_.units.size(); ++unit) {
      const OffloadDevice device = plan_.units[unit].parameters.device;
      if (device == OffloadDevice::kNone) continue;
      if (!offloaded.contains(device)) offloaded[device] = offloaded_param_store(device);
      result_.params[unit] = offloaded[device];
    }
  }

  // Makes a store of parameters for the device; the CPU writes them in place.
  offload::ShardStore* offloaded_param_store(OffloadDevice device) {
    const TensorOffload& params = plan_.parameters;
    const bool in_file = device == OffloadDevice::kNvme;
    auto store =
        in_file ? offload::make_file_store(file_options(
                      "parameters", config_.zero.offload_param.nvme_path, params, params.pinned))
                : offload::make_cpu_store(page_lock_link(params.pinned));
    if (result_.link) {
      store = offload::make_staging_store(std::move(store), result_.link, mesh_.device(),
                                          {.depth = static_cast<size_t>(params.depth),
                                           .inner_leases = in_file ? params.leases() : SIZE_MAX,
                                           .expected = Access::kRead});
    }
    return add(std::move(store));
  }

  const OffloadPlan& plan_;
  const configs::Config& config_;
  const comm::DeviceMesh& mesh_;
  ShardStores result_;
};

}  // namespace

offload::Traffic ShardStores::traffic() const {
  offload::Traffic sum;
  for (const auto& store : stores) sum += store->traffic();
  if (!link || sum.bytes_read + sum.bytes_written > 0) return sum;
  const device::LinkStats use = link->copies->stats();
  sum.bytes_read = use.bytes_to_device;
  sum.bytes_written = use.bytes_to_host;
  sum.reading_s = use.to_device_s;
  sum.writing_s = use.to_host_s;
  sum.in_flight_s = std::max(use.to_device_s, use.to_host_s);
  if (sum.in_flight_s > 0) sum.waited_s = use.waited_s;  // else it covers updates only
  return sum;
}

std::vector<std::string> ShardStores::notes() const {
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

ShardStores make_shard_stores(const OffloadPlan& plan, const configs::Config& config,
                              const comm::DeviceMesh& mesh,
                              std::shared_ptr<device::HostLink> link) {
  return StoreBuilder(plan, config, mesh).make(std::move(link));
}

}  // namespace zeroth::zero
