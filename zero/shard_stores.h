// The stores of a run's offloaded values, and the store of each unit.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "comm/device_mesh.h"
#include "configs/config.h"
#include "device/host_link.h"
#include "offload/shard_store.h"
#include "optim/update_rule.h"
#include "zero/optimizer_states.h"

namespace zeroth::zero {

class GradientOffload;
struct OffloadPlan;

struct ShardStores {
  // Null if the CPU is the device, or no value is offloaded to it.
  std::shared_ptr<device::HostLink> link;
  std::shared_ptr<offload::Staging> staging;
  std::shared_ptr<GradientOffload> gradient_offload;  // null: gradients stay on the device
  std::vector<std::unique_ptr<offload::ShardStore>> stores;
  std::vector<std::unique_ptr<optim::UpdateRule>> rules;
  std::vector<offload::ShardStore*> params;  // see ParamStoreOptions::shard_stores
  std::vector<OptimizerPlacement> updates;   // [unit]
  OptimizerOptions options;

  std::vector<std::string> choices;  // decisions made at the start, for the user
  // The optimizer device of values on the CPU, if it was measured: kCpu or kGpu.
  std::optional<configs::OffloadOptimizerConfig::UpdateDevice> measured_step;

  // Returns the traffic of all stores together; that of the link if no store has its own.
  offload::Traffic traffic() const;
  // Returns notes for the user, one line each, with `others` at the end, each note once.
  std::vector<std::string> notes(const std::vector<std::string>& others = {}) const;
};

// Makes the stores of `plan` for this configuration. `link` connects the CPU to the mesh's device;
// null if they are one. Files are created only when the first chunk is requested. Collective if the
// optimizer device is measured.
ShardStores make_shard_stores(const OffloadPlan& plan, const configs::Config& config,
                              const comm::DeviceMesh& mesh,
                              std::shared_ptr<device::HostLink> link = nullptr);

}  // namespace zeroth::zero
