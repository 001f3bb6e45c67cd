#include "zero/strategy.h"

#include <fmt/format.h>

#include "base/error.h"
#include "device/host_link.h"
#include "zero/dtype.h"
#include "zero/resting_places.h"

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

const Row& row_of_parameters(const UnitPlan& plan, const configs::Config& config,
                             torch::DeviceType device) {
  using configs::RestingPlace;
  const RestingPlace place = config.zero.offload_param.device;
  const bool on_device =
      place == RestingPlace::kDevice || (place == RestingPlace::kCpu && device == torch::kCPU);
  return row_of(on_device ? effective_stage(plan, config) : config.zero.stage);
}

GradReducerOptions reducer_options(const configs::Config& config, int ranks, torch::Device device,
                                   std::shared_ptr<GradLanding> landing) {
  GradReducerOptions options;
  options.device = device;
  const bool accumulates = config.batch.accumulation_steps > 1;
  options.accumulation = gradient_dtype(config);
  options.landing = std::move(landing);
  // One rank sends nothing, unless to the host: its gradients are summed as they come.
  options.wire =
      ranks == 1 && accumulates && !options.landing ? options.accumulation : wire_dtype(config);
  options.reduce_scatter = config.zero.reduce_scatter;
  options.max_in_flight = config.zero.overlap_comm ? 2 : 0;
  options.bucket_elements = config.zero.reduce_bucket_elements;
  return options;
}

// The host's side of a GPU; null where nothing rests on the host or passes through it.
std::shared_ptr<device::HostLink> host_link(const UnitPlan& plan, const configs::ZeroConfig& zero,
                                            torch::Device device) {
  const auto kDevice = configs::RestingPlace::kDevice;
  const bool updates = plan.trains() && zero.offload_optimizer.device != kDevice;
  const bool params = zero.offload_param.device != kDevice;
  if (!updates && !params) return nullptr;
  const bool pins =
      (updates && zero.offload_optimizer.pin_memory) || (params && zero.offload_param.pin_memory);
  return device::make_host_link(device, pins);
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

void set_retention(UnitPlan& plan, const configs::Config& config, torch::DeviceType device) {
  const Retention usual = row_of_parameters(plan, config, device).retention;
  for (Unit& unit : plan.units) {
    const bool small =
        unit.layout.parameter_numel() <= config.zero.param_persistence_threshold_elements;
    unit.retention = usual == Retention::kRelease && small ? Retention::kRefresh : usual;
  }
}

GatherLimits gather_limits(const UnitPlan& plan, const configs::Config& config,
                           torch::DeviceType device) {
  const auto ahead = row_of_parameters(plan, config, device).gathered_ahead;
  return {.prefetch_elements = config.zero.overlap_comm ? config.zero.*ahead : 0,
          .max_live_elements = config.zero.max_live_elements};
}

std::unique_ptr<GradReducer> make_reducer(const UnitPlan& plan, const configs::Config& config,
                                          comm::Group& group, torch::Device device,
                                          std::shared_ptr<GradLanding> landing) {
  const Row& row = row_of(effective_stage(plan, config));
  const bool accumulates = config.batch.accumulation_steps > 1;
  MakeReducer make = accumulates ? row.with_accumulation : row.single_micro_batch;
  // What lands on the host need not be whole on the device of a single rank, whose shard is all.
  if (landing && group.size() == 1) make = make_scatter_reducer;
  return make(plan, group, reducer_options(config, group.size(), device, std::move(landing)));
}

std::string describe(const UnitPlan& plan, const configs::Config& config) {
  const int stage = effective_stage(plan, config);
  return fmt::format("ZeRO stage {}{}: {}", config.zero.stage,
                     stage == config.zero.stage ? "" : " (one rank)", row_of(stage).description);
}

void check_sizes(const UnitPlan& plan, const configs::Config& config) {
  UnitPlan copy = plan;
  set_retention(copy, config, torch::kCPU);
  check_max_live(copy, gather_limits(copy, config, torch::kCPU));
  const RestingPlaces places = resting_places(copy, config.zero);
  parameter_tiles(config.zero.offload_param, places.largest_parameters_in_file(),
                  static_cast<int64_t>(c10::elementSize(dtype_of(config.precision))));
}

Strategy make_strategy(UnitPlan& plan, const configs::Config& config, comm::Mesh& mesh,
                       std::shared_ptr<device::HostLink> link) {
  comm::Group& group = mesh.data();
  const int stage = effective_stage(plan, config);
  if (!link && !mesh.device().is_cpu()) link = host_link(plan, config.zero, mesh.device());
  // With a link the host is another place than the device, also where both are the CPU.
  const torch::DeviceType device = link ? torch::kCUDA : mesh.device().type();
  set_retention(plan, config, device);

  Strategy strategy;
  strategy.rests = make_rests(plan, config, mesh, std::move(link));
  const Rests& rests = strategy.rests;
  strategy.store =
      std::make_unique<ParamStore>(plan, group, mesh.device(),
                                   ParamStoreOptions{.dtype = dtype_of(config.precision),
                                                     .max_reads = rests.max_param_reads,
                                                     .rests = rests.params,
                                                     .staging = rests.staging});
  strategy.grads = make_reducer(plan, config, group, mesh.device(), rests.landing);
  strategy.optimizer = std::make_unique<ShardedOptimizer>(plan, *strategy.store, *strategy.grads,
                                                          rests.updates, rests.options);
  strategy.params = std::make_unique<BlockParams>(
      plan, *strategy.store, *strategy.optimizer,
      BlockParams::Options{.limits = gather_limits(plan, config, device),
                           .update_before_use = rests.update_before_use});
  strategy.factors = gradient_factors(config, group.size(), /*scatters=*/stage > 0);
  strategy.description = describe(plan, config);
  return strategy;
}

}  // namespace zeroth::zero
