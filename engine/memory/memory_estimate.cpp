#include "engine/memory/memory_estimate.h"

#include <algorithm>

#include "engine/state/run_state.h"
#include "engine/state/snapshot.h"
#include "engine/step/schedule.h"
#include "zero/dtype.h"
#include "zero/offload_plan.h"
#include "zero/parameter_index.h"
#include "zero/strategy.h"

namespace zeroth::engine {
namespace {

// Returns the bytes of a micro-batch's tokens. A copy of them exists while it is made.
int64_t token_bytes(int64_t tokens) {
  constexpr int64_t kPerToken = 2 * sizeof(int64_t);  // token and target
  return 2 * kPerToken * tokens;
}

int64_t activation_bytes(const MicroBatchSize& size, const StepSchedule& schedule,
                         size_t num_blocks, int64_t rows, bool trains) {
  const int64_t evaluating =
      evaluation_bytes(size.chain, size.eval_tokens) + token_bytes(size.eval_tokens);
  if (!trains) return evaluating;
  const int64_t tokens = rows * size.row_tokens;
  return std::max(evaluating, activation_bytes(size.chain, schedule, num_blocks, tokens) +
                                  token_bytes(schedule.max_in_flight * tokens));
}

// StateBytes is the bytes of a checkpoint: in a rank's shards, and of the full model.
struct StateBytes {
  int64_t shard = 0, whole = 0;
};

zero::OffloadPlan offload_plan_of(zero::UnitPlan plan, const configs::Config& config,
                                  torch::DeviceType device) {
  return zero::assign_placement(plan, config, /*separate_device=*/device != torch::kCPU);
}

StateBytes state_bytes(const zero::UnitPlan& plan, const configs::Config& config,
                       torch::DeviceType device) {
  const zero::OffloadPlan offload_plan = offload_plan_of(plan, config, device);
  const int64_t weight = zero::element_bytes(offload_plan.working);
  const int64_t master = offload_plan.arrays.master ? offload_plan.arrays.master_bytes() : weight;
  const auto bytes_of = [&](size_t unit, int64_t elements) {
    if (!plan.units[unit].trainable) return elements * weight;
    const bool repeats = std::ranges::any_of(plan.units[unit].layout.slots(), repeats_maxima);
    int64_t bytes = elements * master;
    for (const auto& state : offload_plan.units[unit].arrays.states) {
      bytes += (repeats ? elements : state.entries(elements)) * zero::element_bytes(state.dtype);
    }
    return bytes;
  };
  StateBytes bytes;
  for (size_t unit = 0; unit < plan.units.size(); ++unit) {
    if (plan.units[unit].is_saved && plan.units[unit].is_counted) {
      bytes.shard += bytes_of(unit, plan.units[unit].layout.shard_numel());
    }
  }
  for (const zero::GlobalParameter& parameter : zero::global_parameters(plan)) {
    if (parameter.is_saved) {
      bytes.whole += bytes_of(parameter.slices.front().unit, parameter.numel());
    }
  }
  return bytes;
}

// Returns the schedule of the rank of the plan for so many micro-batches.
StepSchedule schedule_of(const zero::UnitPlan& plan, const configs::Config& config,
                         const PipelinePartition& partition, int64_t micro_batches) {
  return plan_step(partition, config, micro_batches, zero::first_trained_block(plan), plan.pp_rank);
}

struct GatheredBytes {
  int64_t parameters = 0, per_step = 0;
};

// Returns what the rank of the plan gathers.
GatheredBytes gathered_bytes(zero::UnitPlan plan, const configs::Config& config,
                             torch::DeviceType device, const PipelinePartition& partition) {
  const bool separate_device = device != torch::kCPU;
  const zero::OffloadPlan offload_plan = zero::assign_placement(plan, config, separate_device);
  const auto bytes_of = [&](const zero::Unit& unit) {
    return unit.layout.numel() * zero::element_bytes(unit.dtype(offload_plan.working));
  };
  const auto gathered = [&](int64_t micro_batches) {
    const std::vector<int64_t> counts =
        zero::count_gathers(plan, zero::gather_limits(plan, config, separate_device),
                            block_accesses(schedule_of(plan, config, partition, micro_batches)));
    int64_t bytes = 0;
    for (size_t unit = 0; unit < counts.size(); ++unit)
      bytes += counts[unit] * bytes_of(plan.units[unit]);
    return bytes;
  };
  GatheredBytes bytes;
  for (const zero::Unit& unit : plan.units)
    if (unit.is_held && unit.is_gathered_before_use()) bytes.parameters += bytes_of(unit);
  if (bytes.parameters == 0) return bytes;
  const int64_t accumulation = config.batch.accumulation_steps;
  const StepSchedule schedule = schedule_of(plan, config, partition, accumulation);
  if (schedule.period == schedule.ops.size()) {
    bytes.per_step = gathered(accumulation);
  } else {  // a period is a micro-batch, of which the later ones access blocks as the second does
    const int64_t first = gathered(1);
    bytes.per_step = first + (accumulation - 1) * (gathered(2) - first);
  }
  return bytes;
}

}  // namespace

zero::UnitPlan plan_of(const model::Blocks& blocks, const configs::Config& config,
                       const EstimateOptions& options) {
  const int per_pp_rank = options.shape.ranks() / options.shape[comm::MeshDim::kPp];
  return zero::plan_units(
      blocks, comm::MeshLayout(options.shape), options.pp_rank.value_or(0) * per_pp_rank,
      {.trains = options.trains,
       .saves_frozen = options.saves_frozen,
       .min_coded_elements = optim::min_coded_elements(config.optimizer),
       .block_pp_ranks =
           partition_blocks(blocks, config.pipeline, options.block_times).block_pp_ranks()});
}

int64_t count_parameters(const zero::UnitPlan& plan) {
  int64_t count = 0;
  for (const zero::GlobalParameter& parameter : zero::global_parameters(plan))
    count += parameter.numel();
  return count;
}

int64_t count_saved(const zero::UnitPlan& plan) {
  int64_t count = 0;
  for (const zero::GlobalParameter& parameter : zero::global_parameters(plan)) {
    if (parameter.is_saved) count += parameter.numel();
  }
  return count;
}

DecayCounts count_decay(const zero::UnitPlan& plan, const configs::OptimizerConfig& optimizer) {
  DecayCounts counts;
  for (const zero::GlobalParameter& parameter : zero::global_parameters(plan)) {
    if (!parameter.trainable) continue;
    const bool decays = parameter.is_matrix() || !optimizer.no_decay;
    (decays ? counts.decayed : counts.not_decayed) += parameter.numel();
  }
  return counts;
}

zero::MemoryPlan plan_memory(const zero::UnitPlan& plan, const configs::Config& config,
                             const EstimateOptions& options,
                             const std::optional<PipelinePartition>& own_partition) {
  const PipelinePartition partition = own_partition.value_or(
      PipelinePartition::one_rank(plan.block_units.size(), config.pipeline.schedule));
  // The third and later micro-batches access blocks as the second one does.
  const int64_t accumulation = config.batch.accumulation_steps;
  const StepSchedule pattern =
      schedule_of(plan, config, partition,
                  partition.ranks > 1 ? accumulation : std::min<int64_t>(accumulation, 2));
  const StepSchedule schedule = schedule_of(plan, config, partition, accumulation);
  const int64_t rows = std::min(config.batch.micro_batch_size, options.max_rows);
  zero::StepEstimate step{.accesses = block_accesses(pattern),
                          .backward_order = backward_order(pattern),
                          .saved_inputs = max_saved_inputs(schedule),
                          .saved_input_bytes = rows * options.row_elements *
                                               zero::element_bytes(zero::working_dtype(config))};
  if (options.micro_batch) {
    step.activation_bytes = activation_bytes(*options.micro_batch, schedule,
                                             plan.block_units.size(), rows, options.trains);
  }
  zero::MemoryPlan memory = zero::plan_memory(plan, config, options.device, step);
  if (options.saves_beside) {
    zero::TierBytes& saving = memory.saving;
    (options.device == torch::kCPU ? saving.device : saving.pinned) =
        snapshot_memory(state_bytes(plan, config, options.device).shard);
  }
  return memory;
}

MemoryEstimate estimate_memory(const model::Blocks& blocks, const configs::Config& config,
                               const EstimateOptions& options) {
  const zero::UnitPlan plan = plan_of(blocks, config, options);
  zero::check_sizes(plan, config, options.device);
  MemoryEstimate estimate = {
      .num_parameters = count_parameters(plan),
      .num_saved = count_saved(plan),
      .state_bytes = state_bytes(plan, config, options.device).whole,
      .decay = count_decay(plan, config.optimizer),
      .param_buffer_elements = offload_plan_of(plan, config, options.device).param_buffer_elements,
      .grad_buffer_dtype = zero::grad_buffer_dtype(plan, config, options.device),
      .strategy = zero::describe(plan, config)};
  const PipelinePartition partition =
      partition_blocks(blocks, config.pipeline, options.block_times);
  EstimateOptions of_rank = options;
  for (int64_t rank = 0; options.trains && rank < partition.ranks; ++rank) {
    of_rank.pp_rank = static_cast<int>(rank);
    const GatheredBytes bytes =
        gathered_bytes(plan_of(blocks, config, of_rank), config, options.device, partition);
    if (bytes.per_step <= estimate.gathered_per_step) continue;
    estimate.gathered_parameters = bytes.parameters;
    estimate.gathered_per_step = bytes.per_step;
  }
  return estimate;
}

}  // namespace zeroth::engine
