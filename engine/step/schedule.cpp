#include "engine/step/schedule.h"

#include <algorithm>

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

void append_backward(const Segment& segment, std::vector<size_t>& accesses) {
  if (!segment.trained) return;
  if (segment.recompute) {
    for (size_t block = segment.first; block + 1 < segment.end; ++block) accesses.push_back(block);
  }
  for (size_t block = segment.end; block-- > segment.first;) accesses.push_back(block);
}

}  // namespace

std::vector<Segment> plan_segments(size_t num_blocks, const configs::RecomputeConfig& config,
                                   size_t first_trained) {
  std::vector<Segment> segments = {{0, num_blocks, false}};
  if (config.every_nth_block > 0) {
    segments = every_nth(num_blocks, static_cast<size_t>(config.every_nth_block));
  } else if (config.number_checkpoints > 0) {
    segments = evenly_spaced(num_blocks, static_cast<size_t>(config.number_checkpoints));
  }
  segments.back().recompute = false;
  return first_trained == 0 ? segments : split_frozen_prefix(segments, first_trained);
}

std::vector<size_t> forward_accesses(size_t num_blocks, int64_t passes) {
  std::vector<size_t> accesses;
  for (int64_t pass = 0; pass < passes; ++pass) {
    for (size_t block = 0; block < num_blocks; ++block) accesses.push_back(block);
  }
  return accesses;
}

std::vector<size_t> block_accesses(const std::vector<Segment>& segments, int64_t micro_batches) {
  std::vector<size_t> accesses;
  for (int64_t micro = 0; micro < micro_batches; ++micro) {
    for (size_t block = 0; block < segments.back().end; ++block) accesses.push_back(block);
    for (auto segment = segments.rbegin(); segment != segments.rend(); ++segment) {
      append_backward(*segment, accesses);
    }
  }
  return accesses;
}

}  // namespace zeroth::engine
