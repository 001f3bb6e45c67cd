#include "zero/strategy.h"

#include <fmt/format.h>

#include "base/error.h"

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

std::vector<Retention> retentions(const UnitPlan& plan, Retention usual,
                                  int64_t persistence_threshold) {
  std::vector<Retention> retention;
  for (const Unit& unit : plan.units) {
    const bool small = unit.layout.parameter_numel() <= persistence_threshold;
    retention.push_back(usual == Retention::kRelease && small ? Retention::kRefresh : usual);
  }
  return retention;
}

// One rank has nothing to share: it is stage 0 whatever the config says.
int effective_stage(const UnitPlan& plan, const configs::Config& config) {
  const bool alone = plan.units.empty() || plan.units.front().layout.num_shards() == 1;
  return alone ? 0 : config.zero.stage;
}

ParamStoreOptions param_options(const UnitPlan& plan, const configs::Config& config) {
  const configs::ZeroConfig& zero = config.zero;
  const Row& row = row_of(effective_stage(plan, config));
  ParamStoreOptions options;
  options.retention = retentions(plan, row.retention, zero.param_persistence_threshold_elements);
  options.dtype = dtype_of(config.precision);
  options.prefetch_elements = zero.overlap_comm ? zero.*row.gathered_ahead : 0;
  options.max_live_elements = zero.max_live_elements;
  return options;
}

}  // namespace

torch::Dtype dtype_of(configs::Precision precision) {
  switch (precision) {
    case configs::Precision::kBf16:
      return torch::kBFloat16;
    case configs::Precision::kFp16:
      return torch::kHalf;
    default:
      return torch::kFloat;
  }
}

void check_sizes(const UnitPlan& plan, const configs::Config& config) {
  check_max_live(plan, param_options(plan, config));
}

Strategy make_strategy(const UnitPlan& plan, const configs::Config& config, comm::Mesh& mesh) {
  const configs::ZeroConfig& zero = config.zero;
  comm::Group& group = mesh.data();
  const int stage = effective_stage(plan, config);
  const Row& row = row_of(stage);
  const torch::Dtype dtype = dtype_of(config.precision);

  GradReducerOptions grads;
  grads.device = mesh.device();
  grads.wire = group.size() == 1 ? torch::kFloat : dtype;
  grads.max_in_flight = zero.overlap_comm ? 2 : 0;
  grads.max_in_flight_elements = zero.reduce_bucket_elements;
  const bool accumulates = config.batch.accumulation_steps > 1;

  Strategy strategy;
  strategy.params =
      std::make_unique<ParamStore>(plan, group, mesh.device(), param_options(plan, config));
  strategy.grads =
      (accumulates ? row.with_accumulation : row.single_micro_batch)(plan, group, grads);
  strategy.states = offload::make_device_store(mesh.device());
  strategy.description = fmt::format("ZeRO stage {}{}: {}", zero.stage,
                                     stage == zero.stage ? "" : " (one rank)", row.description);
  return strategy;
}

}  // namespace zeroth::zero
