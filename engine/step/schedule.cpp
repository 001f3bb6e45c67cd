#include "engine/step/schedule.h"

#include <algorithm>
#include <map>

#include "base/error.h"

namespace zeroth::engine {
namespace {

std::vector<Segment> every_nth(size_t num_blocks, size_t n) {
  std::vector<Segment> segments;
  for (size_t block = 0; block < num_blocks; ++block) {
    segments.push_back({block, block + 1, block % n == n - 1});
  }
  return segments;
}

std::vector<Segment> evenly_spaced(size_t num_blocks, size_t count) {
  std::vector<Segment> segments;
  count = std::min(count, num_blocks);
  for (size_t i = 0; i < count; ++i) {
    segments.push_back({i * num_blocks / count, (i + 1) * num_blocks / count, true});
  }
  return segments;
}

std::vector<Segment> split_frozen_prefix(const std::vector<Segment>& segments,
                                         size_t first_trained) {
  std::vector<Segment> rest = {{0, first_trained, false, /*trained=*/false}};
  for (Segment segment : segments) {
    segment.first = std::max(segment.first, first_trained);
    if (segment.first < segment.end) rest.push_back(segment);
  }
  return rest;
}

std::vector<Segment> segments_of(size_t num_blocks, const configs::RecomputeConfig& config,
                                 size_t first_trained) {
  std::vector<Segment> segments = {{0, num_blocks, false}};
  if (config.every_nth_block > 0) {
    segments = every_nth(num_blocks, static_cast<size_t>(config.every_nth_block));
  } else if (config.number_checkpoints > 0) {
    segments = evenly_spaced(num_blocks, static_cast<size_t>(config.number_checkpoints));
  }
  return first_trained == 0 ? segments : split_frozen_prefix(segments, first_trained);
}

// Returns the parts of the segments that each lie in one chunk of [ends[i-1], ends[i]).
std::vector<ModelChunk> cut_into_chunks(const std::vector<Segment>& segments,
                                        const std::vector<size_t>& ends) {
  std::vector<ModelChunk> chunks;
  size_t first = 0;
  for (const size_t end : ends) {
    ModelChunk& chunk = chunks.emplace_back();
    for (Segment segment : segments) {
      segment.first = std::max(segment.first, first);
      segment.end = std::min(segment.end, end);
      if (segment.first < segment.end) chunk.push_back(segment);
    }
    first = end;
  }
  return chunks;
}

std::vector<size_t> accesses_of(const ModelChunk& chunk, PipeOpKind kind) {
  std::vector<size_t> accesses;
  if (kind == PipeOpKind::kForward) {
    for (size_t block = chunk.front().first; block < chunk.back().end; ++block)
      accesses.push_back(block);
    return accesses;
  }
  if (kind == PipeOpKind::kBackwardWeight) return accesses;  // reads no parameter
  for_each_backward(chunk, [&](const Segment& segment) {
    if (segment.recompute) {
      for (size_t block = segment.first; block + 1 < segment.end; ++block)
        accesses.push_back(block);
    }
    for (size_t block = segment.end; block-- > segment.first;) accesses.push_back(block);
  });
  return accesses;
}

// Returns whether each backward of the chunk comes right after its forward.
bool backward_follows(const std::vector<PipeOp>& ops, size_t chunk) {
  for (size_t i = 0; i < ops.size(); ++i) {
    if (ops[i].kind != PipeOpKind::kForward || ops[i].chunk != chunk) continue;
    if (i + 1 == ops.size() || ops[i + 1].chunk != chunk ||
        ops[i + 1].micro_batch != ops[i].micro_batch)
      return false;
  }
  return true;
}

// Sets the period and the micro-batches in flight from the operations.
void set_bounds(StepSchedule& schedule) {
  const std::vector<PipeOp>& ops = schedule.ops;
  std::map<int64_t, size_t> last_op;  // by micro-batch
  for (size_t i = 0; i < ops.size(); ++i) last_op[ops[i].micro_batch] = i;
  int64_t begun = 0, ended = 0;
  for (size_t i = 0; i < ops.size(); ++i) {
    begun = std::max(begun, ops[i].micro_batch + 1);
    schedule.max_in_flight = std::max(schedule.max_in_flight, begun - ended);
    if (last_op[ops[i].micro_batch] == i) ended = std::max(ended, ops[i].micro_batch + 1);
  }
  const size_t per_micro_batch = ops.size() / last_op.size();
  schedule.period = schedule.max_in_flight == 1 ? per_micro_batch : ops.size();
}

}  // namespace

StepSchedule plan_step(const PipelinePartition& partition, const configs::Config& config,
                       int64_t micro_batches, size_t first_trained, int64_t rank) {
  const PipelineShape shape = partition.shape(micro_batches);
  const std::vector<ModelChunk> all = cut_into_chunks(
      segments_of(partition.num_blocks(), config.recompute, first_trained), partition.ends);
  StepSchedule schedule;
  schedule.num_blocks = partition.num_blocks();
  schedule.ops = pipeline_ops(partition.schedule, shape, rank);
  for (size_t chunk = 0; chunk < static_cast<size_t>(shape.chunks); ++chunk) {
    const int64_t stage = virtual_stage_of(partition.schedule, shape, rank, chunk);
    schedule.virtual_stages.push_back(stage);
    schedule.chunks.push_back(all[static_cast<size_t>(stage)]);
    if (backward_follows(schedule.ops, chunk)) schedule.chunks.back().back().recompute = false;
  }
  set_bounds(schedule);
  return schedule;
}

configs::PipelineConfig::Schedule evaluation_schedule(const PipelinePartition& partition) {
  using enum configs::PipelineConfig::Schedule;
  return partition.schedule == kBreadthFirst ? kInterleaved1F1B : partition.schedule;
}

int64_t evaluation_group(const PipelinePartition& partition) {
  constexpr int64_t kPerRank = 4;
  return partition.ranks == 1 ? 1 : kPerRank * partition.ranks;
}

StepSchedule plan_evaluation(PipelinePartition partition, int64_t micro_batches, int64_t rank) {
  partition.schedule = evaluation_schedule(partition);
  StepSchedule schedule = plan_step(partition, {}, micro_batches, 0, rank);
  std::erase_if(schedule.ops, [](const PipeOp& op) { return op.kind != PipeOpKind::kForward; });
  set_bounds(schedule);
  return schedule;
}

std::vector<size_t> block_accesses(const StepSchedule& schedule, size_t begin) {
  std::vector<size_t> accesses;
  const size_t end = std::min(begin + 2 * schedule.period, schedule.ops.size());
  for (size_t i = begin; i < end; ++i) {
    const PipeOp& op = schedule.ops[i];
    for (const size_t block : accesses_of(schedule.chunks[op.chunk], op.kind)) {
      if (accesses.empty() || accesses.back() != block) accesses.push_back(block);
    }
  }
  return accesses;
}

void for_each_backward(const ModelChunk& chunk, const std::function<void(const Segment&)>& visit) {
  for (auto segment = chunk.rbegin(); segment != chunk.rend() && segment->trained; ++segment)
    visit(*segment);
}

bool delivers_gradients(PipeOpKind kind, size_t block, size_t num_blocks) {
  switch (kind) {
    case PipeOpKind::kForward:
      return false;
    case PipeOpKind::kBackward:
      return true;
    case PipeOpKind::kBackwardInput:
      return block + 1 == num_blocks;
    case PipeOpKind::kBackwardWeight:
      break;
  }
  return block + 1 < num_blocks;
}

std::vector<size_t> backward_order(const StepSchedule& schedule) {
  std::vector<size_t> order;
  for (const PipeOp& op : schedule.ops) {
    for_each_backward(schedule.chunks[op.chunk], [&](const Segment& segment) {
      for (size_t block = segment.end; block-- > segment.first;) {
        if (delivers_gradients(op.kind, block, schedule.num_blocks)) order.push_back(block);
      }
    });
  }
  return order;
}

int64_t max_saved_inputs(const StepSchedule& schedule) {
  int64_t saved = 0, max = 0;
  for (const PipeOp& op : schedule.ops) {
    // The first block has no input.
    const int64_t own =
        std::ranges::count_if(schedule.chunks[op.chunk], [](const Segment& segment) {
          return segment.recompute && segment.trained && segment.first > 0;
        });
    if (op.kind == PipeOpKind::kBackwardWeight) continue;
    saved += op.kind == PipeOpKind::kForward ? own : -own;
    max = std::max(max, saved);
  }
  return max;
}

}  // namespace zeroth::engine
