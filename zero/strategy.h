// The table from the ZeRO stage to the objects that implement it. No other file of zero/, engine/
// and trainer/ depends on the stage; engine/memory/memory_remedies advises on its key.
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

// Factors of the gradients, which are sums over ranks and micro-batches whose addends add up to the
// mean. The factors keep them from overflow and underflow on the wire, and implement
// gradient_allreduce_op sum.
struct GradientFactors {
  double before = 1;  // factor on every rank's gradients, before communication
  double after = 1;   // factor on their sum
};

struct Strategy {
  ShardStores shard_stores;  // the other members refer to them
  std::unique_ptr<ParamStore> store;
  std::unique_ptr<GradReducer> grads;
  std::unique_ptr<ShardedOptimizer> optimizer;
  std::unique_ptr<BlockParams> params;
  GradientFactors factors;
  std::string description;  // one line for a person
};

// Applies the table to parameters and gradients without stores and ranks, to count their memory:
// sets the gather policies of the plan's units and returns their offload plan. `separate_device`:
// as for plan_offload.
OffloadPlan assign_placement(UnitPlan& plan, const configs::Config& config, bool separate_device);
// Returns the limits of gathers and of their prefetch.
GatherLimits gather_limits(const UnitPlan& plan, const configs::Config& config,
                           bool separate_device);
// Returns ParamStoreOptions::hpz_partition_size.
int hpz_partition_size(const UnitPlan& plan, const configs::Config& config);
// Makes the reducer of gradients. `gradient_offload` is that of GradReducerOptions; it is set if
// `offload_plan` requires it.
std::unique_ptr<GradReducer> make_reducer(
    const UnitPlan& plan, const configs::Config& config, const OffloadPlan& offload_plan,
    const comm::DeviceMesh& mesh, std::shared_ptr<GradientOffload> gradient_offload = nullptr);

// Returns the dtype of the buffers into which backward writes gradients, which GradReducer::open()
// sets.
torch::Dtype grad_buffer_dtype(UnitPlan plan, const configs::Config& config,
                               torch::DeviceType device);

// Returns Strategy::description.
std::string describe(const UnitPlan& plan, const configs::Config& config);

// Throws an Error that names the key for sizes that are invalid for these units on such a device.
void check_sizes(UnitPlan plan, const configs::Config& config, torch::DeviceType device);

// Makes the strategy. Takes over the plan's parameters (see ParamStore), and sets its units' gather
// policies. Keeps references to `plan` and to the mesh. Collective. Throws an Error that names the
// key for invalid sizes. `link` connects the CPU to the device, for tests that run both sides on
// the CPU; by default a GPU's link is made if values are offloaded to the CPU.
Strategy make_strategy(UnitPlan& plan, const configs::Config& config, const comm::DeviceMesh& mesh,
                       std::shared_ptr<device::HostLink> link = nullptr);

}  // namespace zeroth::zero
