// The blocks that a step uses, in order, as data. Pure: no torch, no devices.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "configs/config.h"

namespace zeroth::engine {

// Neighbouring blocks [first, end) with one rule for what forward keeps of them.
struct Segment {
  size_t first = 0;
  size_t end = 0;
  bool recompute = false;  // keep the first block's input only, and run forward again in backward
  bool trained = true;     // false: before the first trained block; backward does not come here
  bool operator==(const Segment&) const = default;
};

// Covers blocks 0 .. num_blocks-1 in order. Blocks before `first_trained` are one segment of which
// nothing is kept. The segment of the last block is never recomputed: its backward follows its
// forward at once, so nothing would be saved.
std::vector<Segment> plan_segments(size_t num_blocks, const configs::RecomputeConfig& config,
                                   size_t first_trained = 0);

// The blocks that so many micro-batches gather one after the other, each forward and then backward,
// in order.
std::vector<size_t> block_accesses(const std::vector<Segment>& segments, int64_t micro_batches);

}  // namespace zeroth::engine
