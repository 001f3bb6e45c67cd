#include "zero/strategy.h"

#include <fmt/format.h>

#include "base/error.h"
#include "device/host_link.h"
#include "zero/offload_plan.h"
#include "zero/unit.h"

namespace zeroth::zero {
namespace {

struct StagePolicy {
  GatherPolicy gather_policy;
  int64_t configs::ZeroConfig::*prefetch_limit;  // elements
  ReducerKind with_accumulation;
  ReducerKind with_stages;  // of a pipeline, between whose passes a reduction would delay others
  // The full gradient need not be kept for one reduction.
  ReducerKind single_reduction;
  const char* description;
};

const StagePolicy& stage_policy(int stage) {
  using configs::ZeroConfig;
  using enum GatherPolicy;
  using enum ReducerKind;
  static const StagePolicy kTable[] = {
      {kNever, &ZeroConfig::allgather_bucket_elements, kFull, kFull, kFull,
       "parameters, gradients and optimizer state replicated"},
      {kAfterUpdate, &ZeroConfig::allgather_bucket_elements, kLateScatter, kLateScatter, kScatter,
       "parameters replicated, optimizer state sharded"},
      {kAfterUpdate, &ZeroConfig::allgather_bucket_elements, kScatter, kLateScatter, kScatter,
       "parameters replicated, gradients and optimizer state sharded"},
      {kBeforeUse, &ZeroConfig::prefetch_bucket_elements, kScatter, kScatter, kScatter,
       "parameters, gradients and optimizer state sharded"},
  };
  ZEROTH_CHECK(stage >= 0 && stage <= 3, "stage {}", stage);
  return kTable[stage];
}

// Returns the stage in effect. A rank that holds its units alone shards with no other: that is
// stage 0 whatever the config says. Parameters that are offloaded to the CPU or a file are gathered
// from there all the same (parameter_stage).
int effective_stage(bool unsharded, const configs::Config& config) {
  return unsharded ? 0 : config.zero.stage;
}

int parameter_stage(bool unsharded, const configs::Config& config, bool separate_device) {
  return offloads_parameters(config, separate_device) ? config.zero.stage
                                                      : effective_stage(unsharded, config);
}

// Returns one kind for all units. Each reducer also supports units on one rank.
ReducerKind reducer_kind(const UnitPlan& plan, const configs::Config& config,
                         const OffloadPlan& offload_plan) {
  // With CPU offload, a single rank needs no full gradient on the device: its shard is all.
  if (offload_plan.offload_gradients && plan.is_unsharded()) return ReducerKind::kScatter;
  const StagePolicy& policy = stage_policy(effective_stage(plan.is_unsharded(), config));
  if (!config.batch.accumulates()) return policy.single_reduction;
  if (config.pipeline.is_on()) return policy.with_stages;
  return config.keeps_all_micro_batches() ? policy.single_reduction : policy.with_accumulation;
}

GradReducerOptions reducer_options(const UnitPlan& plan, const configs::Config& config,
                                   const OffloadPlan& offload_plan) {
  GradReducerOptions options;
  options.accumulation = offload_plan.gradient;
  // Gradients that are neither communicated nor offloaded are summed as they are.
  const bool stays = plan.is_unsharded() && !offload_plan.offload_gradients;
  options.wire = stays && config.batch.accumulates() ? offload_plan.gradient : offload_plan.wire;
  options.reduce_scatter = config.zero.reduce_scatter;
  options.max_in_flight = config.zero.overlap_comm ? 2 : 0;
  options.bucket_elements = config.zero.reduce_bucket_elements;
  return options;
}

// Returns factors like DeepSpeed's: a reduce-scatter sums gradients that were divided by the number
// of ranks, unless gradient_predivide_factor asks for another division; an all-reduce divides by
// that factor before and by the remainder after, or by all before with prescale_gradients. `ranks`:
// of dimension dp. Ranks that share a layer have one loss, of which each contributes its addend.
GradientFactors gradient_factors(const configs::Config& config, int ranks, bool scatters) {
  const configs::GradientConfig& gradients = config.gradients;
  if (gradients.reduce == configs::GradientConfig::Reduction::kSum) {
    return {.before = static_cast<double>(ranks), .after = 1};
  }
  const bool divided_before = gradients.prescale || (scatters && config.zero.reduce_scatter &&
                                                     gradients.predivide_factor == 1);
  if (divided_before) return {};
  const double before = ranks / gradients.predivide_factor;
  return {.before = before, .after = 1 / before};
}

// Returns whether a trained unit is so small beside the frozen ones of its blocks, as adapters are,
// that a gather in every pass would cost more than its shard saves.
bool is_adapter(const UnitPlan& plan, const Unit& unit) {
  constexpr int64_t kFrozenPerTrained = 8;
  if (!unit.trainable) return false;
  int64_t frozen = 0;
  for (const size_t block : unit.blocks) {
    for (const size_t other : plan.block_units[block]) {
      if (!plan.units[other].trainable) frozen += plan.units[other].layout.parameter_numel();
    }
  }
  return frozen >= kFrozenPerTrained * unit.layout.parameter_numel();
}

}  // namespace

OffloadPlan assign_placement(UnitPlan& plan, const configs::Config& config, bool separate_device) {
  for (Unit& unit : plan.units) {
    if (!unit.is_held) continue;
    const int stage = parameter_stage(unit.is_unsharded(), config, separate_device);
    const GatherPolicy policy = stage_policy(stage).gather_policy;
    const bool stays =
        unit.layout.parameter_numel() <= config.zero.param_persistence_threshold_elements ||
        is_adapter(plan, unit);
    unit.gather_policy =
        policy == GatherPolicy::kBeforeUse && stays ? GatherPolicy::kAfterUpdate : policy;
  }
  return plan_offload(plan, config, separate_device);
}

int hpz_partition_size(const UnitPlan& plan, const configs::Config& config) {
  const int64_t secondary_size = config.zero.hpz_partition_size;
  const bool all = secondary_size >= plan.shape[comm::MeshDim::kDp];
  return all ? 1 : static_cast<int>(secondary_size);
}

GatherLimits gather_limits(const UnitPlan& plan, const configs::Config& config,
                           bool separate_device) {
  const int stage = parameter_stage(plan.is_unsharded(), config, separate_device);
  const auto ahead = stage_policy(stage).prefetch_limit;
  return {.prefetch_elements = config.zero.overlap_comm ? config.zero.*ahead : 0,
          .max_live_elements = config.zero.max_live_elements};
}

std::unique_ptr<GradReducer> make_reducer(const UnitPlan& plan, const configs::Config& config,
                                          const OffloadPlan& offload_plan,
                                          const comm::DeviceMesh& mesh,
                                          std::shared_ptr<GradientOffload> gradient_offload) {
  GradReducerOptions options = reducer_options(plan, config, offload_plan);
  options.device = mesh.device();
  options.gradient_offload = std::move(gradient_offload);
  return make_grad_reducer(reducer_kind(plan, config, offload_plan), plan, mesh, options);
}

torch::Dtype grad_buffer_dtype(UnitPlan plan, const configs::Config& config,
                               torch::DeviceType device) {
  const OffloadPlan offload_plan = assign_placement(plan, config, device != torch::kCPU);
  const GradReducerOptions options = reducer_options(plan, config, offload_plan);
  const bool scatters = reducer_kind(plan, config, offload_plan) == ReducerKind::kScatter;
  return scatters && (config.pipeline.is_on() || !config.keeps_all_micro_batches())
             ? options.wire
             : options.accumulation;
}

std::string describe(const UnitPlan& plan, const configs::Config& config) {
  const int stage = effective_stage(plan.is_unsharded(), config);
  const int secondary_size = stage == 3 ? hpz_partition_size(plan, config) : 1;
  return fmt::format(
      "ZeRO stage {}{}: {}{}", config.zero.stage, stage == config.zero.stage ? "" : " (one rank)",
      stage_policy(stage).description,
      secondary_size > 1
          ? fmt::format(", gathered from secondary shards on {} ranks", secondary_size)
          : "");
}

void check_sizes(UnitPlan plan, const configs::Config& config, torch::DeviceType device) {
  const bool separate_device = device != torch::kCPU;
  assign_placement(plan, config, separate_device);
  check_max_live(plan, gather_limits(plan, config, separate_device));
}

Strategy make_strategy(UnitPlan& plan, const configs::Config& config, const comm::DeviceMesh& mesh,
                       std::shared_ptr<device::HostLink> link) {
  // With a link the CPU is separate from the device, even if both are the CPU.
  const bool separate_device = link || !mesh.device().is_cpu();
  const OffloadPlan offload_plan = assign_placement(plan, config, separate_device);
  if (!link && offload_plan.needs_link())
    link = device::make_host_link(mesh.device(), offload_plan.link_pinned);

  Strategy strategy;
  strategy.shard_stores = make_shard_stores(offload_plan, config, mesh, std::move(link));
  const ShardStores& shard_stores = strategy.shard_stores;
  strategy.store = std::make_unique<ParamStore>(
      plan, mesh, mesh.device(),
      ParamStoreOptions{.dtype = offload_plan.working,
                        .max_reads = offload_plan.parameters.leases(),
                        .shard_stores = shard_stores.params,
                        .staging = shard_stores.staging,
                        .hpz_partition_size = hpz_partition_size(plan, config)});
  strategy.grads = make_reducer(plan, config, offload_plan, mesh, shard_stores.gradient_offload);
  strategy.optimizer = std::make_unique<ShardedOptimizer>(
      plan, *strategy.store, *strategy.grads, shard_stores.updates, shard_stores.options);
  strategy.params = std::make_unique<BlockParams>(
      plan, *strategy.store, *strategy.optimizer,
      BlockParams::Options{.limits = gather_limits(plan, config, separate_device),
                           .update_before_use = offload_plan.update_before_use()});
  const bool scatters = effective_stage(plan.is_unsharded(), config) > 0;
  strategy.factors = gradient_factors(config, mesh.layout().shape()[comm::MeshDim::kDp], scatters);
  strategy.description = describe(plan, config);
  return strategy;
}

}  // namespace zeroth::zero
