// Resolution of the pipeline, and of the number of data-parallel ranks.
#include <algorithm>

#include "configs/resolve/context.h"

namespace zeroth::configs {
namespace {

constexpr char kStages[] = "pipeline.stages", kSchedule[] = "pipeline.schedule",
               kVirtual[] = "pipeline.virtual_stages", kPartition[] = "pipeline.partition",
               kTensor[] = "tensor_parallel.autotp_size";

using Schedule = PipelineConfig::Schedule;

// Returns the largest divisor of `ranks` that is at most `max_divisor`.
int64_t largest_divisor(int64_t max_divisor, int64_t ranks) {
  int64_t divisor = std::min(ranks, max_divisor);
  while (ranks % divisor != 0) --divisor;
  return divisor;
}

void fill_schedule(Context& context, PipelineConfig& pipeline) {
  const auto& flag = context.flags.pipeline_schedule;
  if (flag && !parse_enum<Schedule>(*flag)) {
    return context.add_error("--pipeline-schedule: expected {}, found \"{}\"",
                             find_key(kSchedule)->accepts, *flag);
  }
  if (const auto name = context.resolve_value<std::string>(kSchedule, flag)) {
    pipeline.schedule = parse_enum<Schedule>(*name).value_or(pipeline.schedule);
    return;
  }
  // Every block then crosses the link once per pass of a step, and not once per micro-batch.
  const auto device = context.keys.get<std::string>("zero_optimization.offload_param.device");
  if (pipeline.is_on() && device && *device != "none") {
    pipeline.schedule = Schedule::kBreadthFirst;
    context.origins[kSchedule] = "default with zero_optimization.offload_param";
  }
}

// Adds an error if the ranks cannot be partitioned. It names what the user gave.
void check_ranks(Context& context, const Config& config) {
  const int64_t ranks = context.facts.world_size, sharing = config.sharing_ranks();
  if (ranks % sharing == 0) {
    context.data_ranks = config.data_ranks(ranks);
    return;
  }
  const bool has_stages = config.pipeline.is_on();
  if (has_stages && config.tensor_parallel.size > 1) {
    return context.add_error(
        "{} {} x {} {} = {} does not divide the number of ranks, {}: change one of them, or start "
        "{} ranks",
        context.key_or_flag(kStages), config.pipeline.stages, context.key_or_flag(kTensor),
        config.tensor_parallel.size, sharing, ranks, (ranks / sharing + 1) * sharing);
  }
  context.add_error(
      "{}: {} does not divide the number of ranks, {}: set it to {}, or start {} ranks",
      context.key_or_flag(has_stages ? kStages : kTensor), sharing, ranks,
      largest_divisor(sharing, ranks), (ranks / sharing + 1) * sharing);
}

}  // namespace

void fill_mesh(Context& context, Config& config) {
  const size_t before = context.errors.size();
  fill_tensor_parallel(context, config);
  PipelineConfig& pipeline = config.pipeline;
  pipeline.stages = context.resolve_value(kStages, context.flags.pipeline_parallel).value_or(1);
  pipeline.virtual_stages =
      context.resolve_value(kVirtual, context.flags.virtual_stages).value_or(0);
  fill_schedule(context, pipeline);
  const bool bad = context.keys.is_bad(kTensor) || context.keys.is_bad(kStages);
  if (!bad && context.errors.size() == before) check_ranks(context, config);
}

void check_pipeline(Context& context, const Config& config) {
  using enum PipelineConfig::Schedule;
  const auto& [stages, schedule, chunks, partition] = config.pipeline;
  if (stages == 1 && schedule != k1F1B && schedule != kBreadthFirst) {
    context.add_error(
        "pipeline.schedule: \"{}\" orders the passes of several stages, and there is one; "
        "\"1f1b\" and \"breadth-first\" work with one stage",
        to_string(schedule));
  }
  const bool is_fixed = schedule == k1F1B || schedule == kGPipe || schedule == kZbH1;
  if (is_fixed && chunks > 1) {
    context.add_error(
        "{}: {}, but \"{}\" has one chunk of blocks per stage; \"interleaved\" has several",
        context.key_or_flag(kVirtual), chunks, to_string(schedule));
  }
  if (schedule == kZbV && chunks != 0 && chunks != 2) {
    context.add_error("{}: {}, but \"zbv\" goes there and back, with 2 chunks of blocks per stage",
                      context.key_or_flag(kVirtual), chunks);
  }
  const bool is_known = partition == "parameters" || partition == "uniform" ||
                        partition == "time" || partition == "best" ||
                        partition.starts_with("type:");
  if (!is_known) {
    context.add_error(
        "{}: expected \"parameters\", \"uniform\", \"time\", \"best\" or \"type:REGEX\", found "
        "\"{}\"",
        kPartition, partition);
  }
}

}  // namespace zeroth::configs
