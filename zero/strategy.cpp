#include "zero/strategy.h"

#include <fmt/format.h>

#include "base/error.h"
#include "device/host_link.h"

namespace zeroth::zero {
namespace {

using MakeReducer = std::unique_ptr<GradReducer> (*)(const UnitPlan&, const comm::Mesh&,
                                                     const GradReducerOptions&);

struct Row {
  Retention retention;
  int64_t configs::ZeroConfig::*gathered_ahead;  // elements
  MakeReducer with_accumulation;
  // A step has one reduction then: the whole gradient need not be kept for it.
  MakeReducer single_micro_batch;
  const char* description;
};

const Row& row_of(int stage) {
  using configs::ZeroConfig;
  static const Row kTable[] = {
      {Retention::kWhole, &ZeroConfig::allgather_bucket_elements, make_whole_reducer,
       make_whole_reducer, "parameters, gradients and optimizer state replicated"},
      {Retention::kRefresh, &ZeroConfig::allgather_bucket_elements, make_late_scatter_reducer,
       make_scatter_reducer, "parameters replicated, optimizer state sharded"},
      {Retention::kRefresh, &ZeroConfig::allgather_bucket_elements, make_scatter_reducer,
       make_scatter_reducer, "parameters replicated, gradients and optimizer state sharded"},
      {Retention::kRelease, &ZeroConfig::prefetch_bucket_elements, make_scatter_reducer,
       make_scatter_reducer, "parameters, gradients and optimizer state sharded"},
  };
  ZEROTH_CHECK(stage >= 0 && stage <= 3, "stage {}", stage);
  return kTable[stage];
}

// What a rank holds alone it has nobody to share with: that is stage 0 whatever the config says.
// Parameters that rest on the host or in a file are gathered from there all the same
// (stage_of_parameters).
int effective_stage(bool alone, const configs::Config& config) {
  return alone ? 0 : config.zero.stage;
}

int stage_of_parameters(bool alone, const configs::Config& config, bool apart) {
  using configs::RestingPlace;
  const RestingPlace place = config.zero.offload_param.device;
  const bool on_device = place == RestingPlace::kDevice || (place == RestingPlace::kCpu && !apart);
  return on_device ? effective_stage(alone, config) : config.zero.stage;
}

// One for all units. Each does what a unit of one holder needs, too.
MakeReducer reducer_of(const UnitPlan& plan, const configs::Config& config, const RestPlan& rest) {
  // What lands on the host need not be whole on the device of a single holder, whose shard is all.
  if (rest.gradients_land && plan.alone()) return make_scatter_reducer;
  const Row& row = row_of(effective_stage(plan.alone(), config));
  return config.batch.accumulation_steps > 1 ? row.with_accumulation : row.single_micro_batch;
}

GradReducerOptions reducer_options(const UnitPlan& plan, const configs::Config& config,
                                   const RestPlan& rest) {
  GradReducerOptions options;
  const bool accumulates = config.batch.accumulation_steps > 1;
  options.accumulation = rest.gradient;
  // What is sent nowhere, nor to the host, is summed as it comes.
  const bool stays = plan.alone() && !rest.gradients_land;
  options.wire = stays && accumulates ? rest.gradient : rest.wire;
  options.reduce_scatter = config.zero.reduce_scatter;
  options.max_in_flight = config.zero.overlap_comm ? 2 : 0;
  options.bucket_elements = config.zero.reduce_bucket_elements;
  return options;
}

// As DeepSpeed: a reduce-scatter sums what was divided by the number of ranks, unless
// gradient_predivide_factor asks for another division; an all-reduce divides by that factor before
// and by the rest after, or by all before with prescale_gradients. `ranks`: of axis data. Those
// that share a layer have one loss, of which each gives its addend.
GradientFactors gradient_factors(const configs::Config& config, int ranks, bool scatters) {
  const configs::GradientConfig& gradients = config.gradients;
  if (gradients.reduce == configs::GradientConfig::Reduce::kSum) {
    return {.before = static_cast<double>(ranks), .after = 1};
  }
  const bool divided_before = gradients.prescale || (scatters && config.zero.reduce_scatter &&
                                                     gradients.predivide_factor == 1);
  if (divided_before) return {};
  const double before = ranks / gradients.predivide_factor;
  return {.before = before, .after = 1 / before};
}

}  // namespace

RestPlan settle(UnitPlan& plan, const configs::Config& config, bool apart) {
  for (Unit& unit : plan.units) {
    const int stage = stage_of_parameters(unit.alone(), config, apart);
    const Retention usual = row_of(stage).retention;
    const bool small =
        unit.layout.parameter_numel() <= config.zero.param_persistence_threshold_elements;
    unit.retention = usual == Retention::kRelease && small ? Retention::kRefresh : usual;
  }
  return plan_rest(plan, config, apart);
}

int near_ranks(const UnitPlan& plan, const configs::Config& config) {
  const int64_t near = config.zero.hpz_partition_size;
  const bool all = near >= plan.shape[comm::Axis::kData];
  return all ? 1 : static_cast<int>(near);
}

GatherLimits gather_limits(const UnitPlan& plan, const configs::Config& config, bool apart) {
  const int stage = stage_of_parameters(plan.alone(), config, apart);
  const auto ahead = row_of(stage).gathered_ahead;
  return {.prefetch_elements = config.zero.overlap_comm ? config.zero.*ahead : 0,
          .max_live_elements = config.zero.max_live_elements};
}

std::unique_ptr<GradReducer> make_reducer(const UnitPlan& plan, const configs::Config& config,
                                          const RestPlan& rest, const comm::Mesh& mesh,
                                          std::shared_ptr<GradLanding> landing) {
  GradReducerOptions options = reducer_options(plan, config, rest);
  options.device = mesh.device();
  options.landing = std::move(landing);
  return reducer_of(plan, config, rest)(plan, mesh, options);
}

torch::Dtype opened_gradient_dtype(UnitPlan plan, const configs::Config& config,
                                   torch::DeviceType device) {
  const RestPlan rest = settle(plan, config, device != torch::kCPU);
  const GradReducerOptions options = reducer_options(plan, config, rest);
  const bool scatters = reducer_of(plan, config, rest) == make_scatter_reducer;
  return scatters ? options.wire : options.accumulation;
}

std::string describe(const UnitPlan& plan, const configs::Config& config) {
  const int stage = effective_stage(plan.alone(), config);
  const int near = stage == 3 ? near_ranks(plan, config) : 1;
  return fmt::format("ZeRO stage {}{}: {}{}", config.zero.stage,
                     stage == config.zero.stage ? "" : " (one rank)", row_of(stage).description,
                     near > 1 ? fmt::format(", gathered from {} near ranks", near) : "");
}

void check_sizes(UnitPlan plan, const configs::Config& config, torch::DeviceType device) {
  const bool apart = device != torch::kCPU;
  settle(plan, config, apart);
  check_max_live(plan, gather_limits(plan, config, apart));
}

Strategy make_strategy(UnitPlan& plan, const configs::Config& config, const comm::Mesh& mesh,
                       std::shared_ptr<device::HostLink> link) {
  // With a link the host is another place than the device, also where both are the CPU.
  const bool apart = link || !mesh.device().is_cpu();
  const RestPlan rest = settle(plan, config, apart);
  if (!link && rest.needs_link()) link = device::make_host_link(mesh.device(), rest.link_pinned);

  Strategy strategy;
  strategy.resting = make_resting_stores(rest, config, mesh, std::move(link));
  const RestingStores& resting = strategy.resting;
  strategy.store =
      std::make_unique<ParamStore>(plan, mesh, mesh.device(),
                                   ParamStoreOptions{.dtype = rest.working,
                                                     .max_reads = rest.parameters.leases(),
                                                     .rests = resting.params,
                                                     .staging = resting.staging,
                                                     .near_ranks = near_ranks(plan, config)});
  strategy.grads = make_reducer(plan, config, rest, mesh, resting.landing);
  strategy.optimizer = std::make_unique<ShardedOptimizer>(plan, *strategy.store, *strategy.grads,
                                                          resting.updates, resting.options);
  strategy.params = std::make_unique<BlockParams>(
      plan, *strategy.store, *strategy.optimizer,
      BlockParams::Options{.limits = gather_limits(plan, config, apart),
                           .update_before_use = rest.update_before_use()});
  const bool scatters = effective_stage(plan.alone(), config) > 0;
  strategy.factors = gradient_factors(config, mesh.grid().shape()[comm::Axis::kData], scatters);
  strategy.description = describe(plan, config);
  return strategy;
}

}  // namespace zeroth::zero
