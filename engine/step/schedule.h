// Schedule: the blocks that a step uses, in order, as data. Independent of torch and devices.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "configs/config.h"

namespace zeroth::engine {

// A Segment is the neighboring blocks [first, end), with one rule for what forward keeps of them.
struct Segment {
  size_t first = 0;
  size_t end = 0;
  bool recompute = false;  // save the first block's input only, and run forward again in backward
  bool trained = true;     // false: before the first trained block; backward does not reach it
  bool operator==(const Segment&) const = default;
};

// Returns segments that cover blocks 0 .. num_blocks-1 in order. Blocks before `first_trained` are
// one segment, of which nothing is saved. The segment of the last block is never recomputed: its
// backward follows its forward at once, so that would save no memory.
std::vector<Segment> plan_segments(size_t num_blocks, const configs::RecomputeConfig& config,
                                   size_t first_trained = 0);

// Returns the blocks that `passes` forward passes without backward gather, in order.
std::vector<size_t> forward_accesses(size_t num_blocks, int64_t passes);

// Returns the blocks that `micro_batches` micro-batches gather one after the other, each in forward
// and then backward, in order.
std::vector<size_t> block_accesses(const std::vector<Segment>& segments, int64_t micro_batches);

}  // namespace zeroth::engine
