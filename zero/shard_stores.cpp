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

  // Adds the store of offloaded values: in a file if `file` is set, otherwise in CPU memory. If it
  // `streams`, the device uses them, and chunks are copied to it.
  offload::ShardStore* add_offloaded(const TensorOffload& offloaded,
                                     std::optional<offload::FileStoreOptions> file, bool streams,
                                     Access expected) {
    // Memory without copies is not pinned.
    const auto link = streams && offloaded.pinned ? result_.link : nullptr;
    if (file) file->link = link;
    auto store = file ? offload::make_file_store(*std::move(file)) : offload::make_cpu_store(link);
    if (streams) {
      store = offload::make_staging_store(std::move(store), result_.link, mesh_.device(),
                                          {.depth = static_cast<size_t>(offloaded.depth),
                                           .inner_leases = file ? offloaded.leases() : SIZE_MAX,
                                           .expected = expected});
    }
    return add(std::move(store));
  }

  offload::FileStoreOptions file_options(const char* kind, const std::string& directory,
                                         const TensorOffload& offloaded) const {
    return {.place = {.nvme_path = directory,
                      .run_id = mesh_.run_id(),
                      .rank = mesh_.rank(),
                      .kind = kind},
            .aio = config_.aio,
            .buffers = static_cast<size_t>(offloaded.buffers),
            .buffer_bytes = offloaded.buffer_bytes};
  }

  void place_optimizer() {
    result_.options = {.tile_elements = config_.zero.sub_group_size_elements,
                       .decay_vectors = !config_.optimizer.no_decay,
                       .staging = result_.staging};
    const OptimizerPlacement here = {add(offload::make_memory_store(mesh_.device())), nullptr,
                                     mesh_.device()};
    result_.updates.assign(plan_.units.size(), here);
    if (plan_.updates.any) {
      const OptimizerPlacement offloaded = offloaded_placement(here);
      for (size_t unit = 0; unit < plan_.units.size(); ++unit) {
        if (plan_.units[unit].updates.device != OffloadDevice::kNone)
          result_.updates[unit] = offloaded;
      }
    }
    place_rules();
  }

  // Makes one rule for each device, and for units with coded states and without.
  void place_rules() {
    std::map<std::pair<torch::DeviceType, bool>, const optim::UpdateRule*> rules;
    for (size_t unit = 0; unit < plan_.units.size(); ++unit) {
      const bool coded = plan_.units[unit].coded;
      const torch::Device device = result_.updates[unit].device;
      const optim::UpdateRule*& rule = rules[{device.type(), coded}];
      if (rule == nullptr) {
        result_.rules.push_back(
            optim::make_update_rule(unit_optimizer(config_.optimizer, coded), device));
        rule = result_.rules.back().get();
      }
      result_.updates[unit].rule = rule;
    }
  }

  bool updates_on_device() {
    using OptimizerDevice = OffloadPlan::OptimizerDevice;
    if (plan_.optimizer_device != OptimizerDevice::kAuto) {
      return plan_.optimizer_device == OptimizerDevice::kGpu;
    }
    if (config_.pipeline.is_on()) {  // whose ranks do not all have something to update
      result_.choices.emplace_back(
          "offload_optimizer.step \"auto\": the CPU updates; in a pipeline it is not timed");
      result_.measured_step = OptimizerDevice::kCpu;
      return false;
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
    if (!on_device) offloaded.device = torch::kCPU;
    std::optional<offload::FileStoreOptions> file;
    if (plan_.updates.buffers > 0) {
      const configs::OffloadOptimizerConfig& offload = config_.zero.offload_optimizer;
      file = file_options("optimizer", offload.nvme_path, plan_.updates);
      file->cache = {offload.pipeline_read, offload.pipeline_write};
    }
    const bool streams = result_.link && on_device;
    if (file || streams) result_.options.tile_elements = plan_.tile_elements;
    offloaded.states = add_offloaded(plan_.updates, std::move(file), streams, Access::kReadWrite);
    return offloaded;
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
    std::optional<offload::FileStoreOptions> file;
    if (device == OffloadDevice::kNvme) {
      file = file_options("parameters", config_.zero.offload_param.nvme_path, plan_.parameters);
    }
    return add_offloaded(plan_.parameters, std::move(file), result_.link != nullptr, Access::kRead);
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

std::vector<std::string> ShardStores::notes(const std::vector<std::string>& others) const {
  std::vector<std::string> notes = choices;
  const auto add = [&](const std::vector<std::string>& more) {
    for (const std::string& note : more) {
      if (std::find(notes.begin(), notes.end(), note) == notes.end()) notes.push_back(note);
    }
  };
  if (link) add(link->memory.notes());
  for (const auto& store : stores) add(store->notes());
  add(others);
  return notes;
}

ShardStores make_shard_stores(const OffloadPlan& plan, const configs::Config& config,
                              const comm::DeviceMesh& mesh,
                              std::shared_ptr<device::HostLink> link) {
  return StoreBuilder(plan, config, mesh).make(std::move(link));
}

}  // namespace zeroth::zero
