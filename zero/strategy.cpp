#include "zero/strategy.h"

#include <fmt/format.h>

#include "base/error.h"
#include "device/host_link.h"

namespace zeroth::zero {
namespace {

using MakeReducer = std::unique_ptr<GradReducer> (*)(const UnitPlan&, comm::Group&,
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

// A rank that is alone has nothing to share: it is stage 0 whatever the config says. Parameters
// that rest on the host or in a file are gathered from there all the same (row_of_parameters).
int effective_stage(const UnitPlan& plan, const configs::Config& config) {
  const bool alone = plan.units.empty() || plan.units.front().layout.num_shards() == 1;
  return alone ? 0 : config.zero.stage;
}

const Row& row_of_parameters(const UnitPlan& plan, const configs::Config& config, bool apart) {
  using configs::RestingPlace;
  const RestingPlace place = config.zero.offload_param.device;
  const bool on_device = place == RestingPlace::kDevice || (place == RestingPlace::kCpu && !apart);
  return row_of(on_device ? effective_stage(plan, config) : config.zero.stage);
}

MakeReducer reducer_of(const UnitPlan& plan, const configs::Config& config, const RestPlan& rest,
                       int ranks) {
  // What lands on the host need not be whole on the device of a single rank, whose shard is all.
  if (rest.gradients_land && ranks == 1) return make_scatter_reducer;
  const Row& row = row_of(effective_stage(plan, config));
  return config.batch.accumulation_steps > 1 ? row.with_accumulation : row.single_micro_batch;
}

GradReducerOptions reducer_options(const configs::Config& config, const RestPlan& rest, int ranks) {
  GradReducerOptions options;
  const bool accumulates = config.batch.accumulation_steps > 1;
  options.accumulation = rest.gradient;
  // One rank sends nothing, unless to the host: its gradients are summed as they come.
  options.wire = ranks == 1 && accumulates && !rest.gradients_land ? rest.gradient : rest.wire;
  options.reduce_scatter = config.zero.reduce_scatter;
  options.max_in_flight = config.zero.overlap_comm ? 2 : 0;
  options.bucket_elements = config.zero.reduce_bucket_elements;
  return options;
}

// As DeepSpeed: a reduce-scatter sums what was divided by the number of ranks, unless
// gradient_predivide_factor asks for another division; an all-reduce divides by that factor before
// and by the rest after, or by all before with prescale_gradients.
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
  const Retention usual = row_of_parameters(plan, config, apart).retention;
  for (Unit& unit : plan.units) {
    const bool small =
        unit.layout.parameter_numel() <= config.zero.param_persistence_threshold_elements;
    unit.retention = usual == Retention::kRelease && small ? Retention::kRefresh : usual;
  }
  return plan_rest(plan, config, apart);
}

GatherLimits gather_limits(const UnitPlan& plan, const configs::Config& config, bool apart) {
  const auto ahead = row_of_parameters(plan, config, apart).gathered_ahead;
  return {.prefetch_elements = config.zero.overlap_comm ? config.zero.*ahead : 0,
          .max_live_elements = config.zero.max_live_elements};
}

std::unique_ptr<GradReducer> make_reducer(const UnitPlan& plan, const configs::Config& config,
                                          const RestPlan& rest, comm::Group& group,
                                          torch::Device device,
                                          std::shared_ptr<GradLanding> landing) {
  GradReducerOptions options = reducer_options(config, rest, group.size());
  options.device = device;
  options.landing = std::move(landing);
  return reducer_of(plan, config, rest, group.size())(plan, group, options);
}

torch::Dtype opened_gradient_dtype(UnitPlan plan, const configs::Config& config,
                                   torch::DeviceType device) {
  const RestPlan rest = settle(plan, config, device != torch::kCPU);
  const int ranks = plan.units.empty() ? 1 : plan.units.front().layout.num_shards();
  const GradReducerOptions options = reducer_options(config, rest, ranks);
  const bool scatters = reducer_of(plan, config, rest, ranks) == make_scatter_reducer;
  return scatters ? options.wire : options.accumulation;
}

std::string describe(const UnitPlan& plan, const configs::Config& config) {
  const int stage = effective_stage(plan, config);
  return fmt::format("ZeRO stage {}{}: {}", config.zero.stage,
                     stage == config.zero.stage ? "" : " (one rank)", row_of(stage).description);
}

void check_sizes(UnitPlan plan, const configs::Config& config, torch::DeviceType device) {
  const bool apart = device != torch::kCPU;
  settle(plan, config, apart);
  check_max_live(plan, gather_limits(plan, config, apart));
}

Strategy make_strategy(UnitPlan& plan, const configs::Config& config, comm::Mesh& mesh,
                       std::shared_ptr<device::HostLink> link) {
  comm::Group& group = mesh.data();
  const int stage = effective_stage(plan, config);
  // With a link the host is another place than the device, also where both are the CPU.
  const bool apart = link || !mesh.device().is_cpu();
  const RestPlan rest = settle(plan, config, apart);
  if (!link && rest.needs_link()) link = device::make_host_link(mesh.device(), rest.link_pinned);

  Strategy strategy;
  strategy.resting = make_resting_stores(rest, config, mesh, std::move(link));
  const RestingStores& resting = strategy.resting;
  strategy.store =
      std::make_unique<ParamStore>(plan, group, mesh.device(),
                                   ParamStoreOptions{.dtype = rest.working,
                                                     .max_reads = rest.parameters.leases(),
                                                     .rests = resting.params,
                                                     .staging = resting.staging});
  strategy.grads = make_reducer(plan, config, rest, group, mesh.device(), resting.landing);
  strategy.optimizer = std::make_unique<ShardedOptimizer>(plan, *strategy.store, *strategy.grads,
                                                          resting.updates, resting.options);
  strategy.params = std::make_unique<BlockParams>(
      plan, *strategy.store, *strategy.optimizer,
      BlockParams::Options{.limits = gather_limits(plan, config, apart),
                           .update_before_use = rest.update_before_use()});
  strategy.factors = gradient_factors(config, group.size(), /*scatters=*/stage > 0);
  strategy.description = describe(plan, config);
  return strategy;
}

}  // namespace zeroth::zero
