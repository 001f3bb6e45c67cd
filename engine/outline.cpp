#include "engine/outline.h"

#include <algorithm>

#include "engine/schedule.h"
#include "zero/strategy.h"

namespace zeroth::engine {
namespace {

// Backward keeps the inputs of those segments that it runs again; the first block has none.
int64_t count_kept_inputs(const std::vector<Segment>& segments) {
  return std::count_if(segments.begin(), segments.end(), [](const Segment& segment) {
    return segment.recompute && segment.trained && segment.first > 0;
  });
}

}  // namespace

int64_t count_parameters(const zero::UnitPlan& plan) {
  int64_t count = 0;
  for (const zero::Unit& unit : plan.units) count += unit.layout.parameter_numel();
  return count;
}

DecayCounts count_decay(const zero::UnitPlan& plan, const configs::OptimizerConfig& optimizer) {
  DecayCounts counts;
  for (const zero::Unit& unit : plan.units) {
    if (!unit.trainable) continue;
    const int64_t left_out = optimizer.no_decay ? unit.layout.vector_numel() : 0;
    counts.decayed += unit.layout.parameter_numel() - left_out;
    counts.not_decayed += left_out;
  }
  return counts;
}

zero::MemoryPlan plan_memory(const zero::UnitPlan& plan, const configs::Config& config,
                             const OutlineOptions& options) {
  const auto segments =
      plan_segments(plan.block_units.size(), config.recompute, zero::first_trained_block(plan));
  // The third micro-batch and those after it visit blocks as the second one does.
  const int64_t micros = std::min<int64_t>(config.batch.accumulation_steps, 2);
  const zero::StepOutline step{
      .visits = visits(make_schedule(static_cast<size_t>(micros)), segments),
      .kept_inputs = count_kept_inputs(segments),
      .kept_input_bytes = options.block_input_bytes};
  return zero::plan_memory(plan, config, options.device, step);
}

Outline outline(const model::Blocks& blocks, const configs::Config& config,
                const OutlineOptions& options) {
  const zero::UnitPlan plan = zero::plan_units(blocks, options.world_size, options.trains);
  zero::check_sizes(plan, config);
  return {.num_parameters = count_parameters(plan),
          .decay = count_decay(plan, config.optimizer),
          .strategy = zero::describe(plan, config),
          .memory = plan_memory(plan, config, options)};
}

}  // namespace zeroth::engine
