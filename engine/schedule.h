// What one step does, in order, as data. Pure: no torch, no devices.
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

struct PipeOp {
  enum Kind { kForward, kBackward };
  Kind kind = kForward;
  size_t micro = 0;   // which micro-batch of the step
  bool last = false;  // no later op of this step writes these blocks' gradients
  bool operator==(const PipeOp&) const = default;
};

// Of one micro-batch after the other: forward, backward, forward, backward ...
std::vector<PipeOp> make_schedule(size_t num_micro_batches);

// The blocks that the ops gather, in order.
std::vector<size_t> visits(const std::vector<PipeOp>& ops, const std::vector<Segment>& segments);

}  // namespace zeroth::engine
