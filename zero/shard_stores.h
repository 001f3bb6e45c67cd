// The stores in which a run's values rest, and which unit's rest in which.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "comm/device_mesh.h"
#include "configs/config.h"
#include "offload/staging.h"
#include "optim/update_rule.h"
#include "zero/gradient_offload.h"
#include "zero/offload_plan.h"
#include "zero/sharded_optimizer.h"

namespace zeroth::zero {

struct ShardStores {
  // Null where the host is the device, or nothing rests on it.
  std::shared_ptr<device::HostLink> link;
  std::shared_ptr<offload::Staging> staging;
  std::shared_ptr<GradientOffload> gradient_offload;  // null: gradients rest on the device
  std::vector<std::unique_ptr<offload::ShardStore>> stores;
  std::vector<std::unique_ptr<optim::UpdateRule>> rules;
  std::vector<offload::ShardStore*> params;  // as ParamStoreOptions::rests
  std::vector<OptimizerPlacement> updates;   // [unit]
  ShardedOptimizer::Options options;

  std::vector<std::string> choices;  // made at the start, for the user
  // Who updates what rests on the host, where that was measured: kCpu or kGpu.
  std::optional<configs::OffloadOptimizerConfig::UpdateDevice> measured_step;

  // Of all stores together; of the link where none has any of its own.
  offload::Traffic traffic() const;
  // What the user should know, one line each.
  std::vector<std::string> notes() const;
};

// As `plan` of this configuration says. `link`: the host's side of the mesh's device; null where
// they are one. No file is made yet: that is when the first tile is asked for. Collective where the
// updater is measured.
ShardStores make_shard_stores(const OffloadPlan& plan, const configs::Config& config,
                              const comm::DeviceMesh& mesh,
                              std::shared_ptr<device::HostLink> link = nullptr);

}  // namespace zeroth::zero
