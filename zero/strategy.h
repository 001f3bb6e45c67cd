// The table from the ZeRO stage to the objects that act on it. No other file of zero/, engine/ and
// trainer/ acts on the stage; engine/fitting_config and engine/memory_remedies advise on its key.
#pragma once

#include <memory>
#include <string>

#include "comm/device_mesh.h"
#include "configs/config.h"
#include "zero/block_params.h"
#include "zero/grad_reducer.h"
#include "zero/param_store.h"
#include "zero/shard_stores.h"
#include "zero/sharded_optimizer.h"

namespace zeroth::zero {

// Gradients are sums over ranks and micro-batches of what adds up to the mean. So that they neither
// overflow nor vanish on the wire, and for gradient_allreduce_op sum, a factor goes with them.
struct GradientFactors {
  double before = 1;  // on every rank's gradients, before they cross the group
  double after = 1;   // on their sum
};

struct Strategy {
  ShardStores shard_stores;  // the others refer to them
  std::unique_ptr<ParamStore> store;
  std::unique_ptr<GradReducer> grads;
  std::unique_ptr<ShardedOptimizer> optimizer;
  std::unique_ptr<BlockParams> params;
  GradientFactors factors;
  std::string description;  // one line for a person
};

// What the table says of parameters and gradients, without stores and ranks, to count what they
// take. `apart`: as for plan_offload. What becomes of the plan's units, and where they rest ...
OffloadPlan assign_placement(UnitPlan& plan, const configs::Config& config, bool separate_device);
// ... what is gathered ahead of use ...
GatherLimits gather_limits(const UnitPlan& plan, const configs::Config& config,
                           bool separate_device);
// ... from how many ranks (ParamStoreOptions::hpz_partition_size) ...
int hpz_partition_size(const UnitPlan& plan, const configs::Config& config);
// ... and where gradients go. `landing`: as in GradReducerOptions; it is there where `rest` says
// so.
std::unique_ptr<GradReducer> make_reducer(
    const UnitPlan& plan, const configs::Config& config, const OffloadPlan& offload_plan,
    const comm::DeviceMesh& mesh, std::shared_ptr<GradientOffload> gradient_offload = nullptr);

// Of the buffers into which backward writes gradients: what GradReducer::open() points at.
torch::Dtype grad_buffer_dtype(UnitPlan plan, const configs::Config& config,
                               torch::DeviceType device);

// Strategy::description.
std::string describe(const UnitPlan& plan, const configs::Config& config);

// Throws an Error that names the key for sizes that cannot work with these units on such a device.
void check_sizes(UnitPlan plan, const configs::Config& config, torch::DeviceType device);

// Takes the plan's parameters over (see ParamStore), and decides what becomes of its units. Keeps
// references to `plan` and to the mesh. Collective. Throws an Error that names the key for sizes
// that cannot work. `link`: the host's side of the device, for tests that run both sides on the
// CPU; by default a GPU's is made where something rests on the host.
Strategy make_strategy(UnitPlan& plan, const configs::Config& config, const comm::DeviceMesh& mesh,
                       std::shared_ptr<device::HostLink> link = nullptr);

}  // namespace zeroth::zero
