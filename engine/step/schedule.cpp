#include "engine/step/schedule.h"

#include <algorithm>
#include <numeric>

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
  for_each_backward(chunk, [&](const Segment& segment) {
    if (segment.recompute) {
      for (size_t block = segment.first; block + 1 < segment.end; ++block)
        accesses.push_back(block);
    }
    for (size_t block = segment.end; block-- > segment.first;) accesses.push_back(block);
  });
  return accesses;
}

}  // namespace

StepSchedule plan_step(size_t num_blocks, const configs::Config& config, int64_t micro_batches,
                       size_t first_trained) {
  using enum configs::PipelineConfig::Schedule;
  const bool breadth_first = config.pipeline.schedule == kBreadthFirst;
  ZEROTH_CHECK(breadth_first || config.pipeline.schedule == k1F1B,
               "schedule {} needs several stages", static_cast<int>(config.pipeline.schedule));
  std::vector<size_t> ends = {num_blocks};
  if (breadth_first) {
    ends.resize(num_blocks);
    std::iota(ends.begin(), ends.end(), size_t{1});
  }
  StepSchedule schedule;
  schedule.chunks = cut_into_chunks(segments_of(num_blocks, config.recompute, first_trained), ends);
  schedule.chunks.back().back().recompute = false;
  schedule.ops =
      pipeline_ops(config.pipeline.schedule,
                   {.chunks = static_cast<int64_t>(ends.size()), .micro_batches = micro_batches},
                   /*rank=*/0);
  schedule.period = breadth_first ? schedule.ops.size() : 2;
  schedule.max_in_flight = breadth_first ? micro_batches : 1;
  return schedule;
}

std::vector<size_t> forward_accesses(size_t num_blocks, int64_t passes) {
  std::vector<size_t> accesses;
  for (int64_t pass = 0; pass < passes; ++pass) {
    for (size_t block = 0; block < num_blocks; ++block) accesses.push_back(block);
  }
  return accesses;
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

std::vector<size_t> backward_order(const StepSchedule& schedule) {
  std::vector<size_t> order;
  for (const PipeOp& op : schedule.ops) {
    if (op.kind == PipeOpKind::kForward) continue;
    for_each_backward(schedule.chunks[op.chunk], [&](const Segment& segment) {
      for (size_t block = segment.end; block-- > segment.first;) order.push_back(block);
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
    saved += op.kind == PipeOpKind::kForward ? own : -own;
    max = std::max(max, saved);
  }
  return max;
}

}  // namespace zeroth::engine
