// Schedule: what a step runs on this rank, in order, as data. Independent of torch and devices.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "configs/config.h"
#include "engine/step/pipeline_schedule.h"

namespace zeroth::engine {

// A Segment is the neighboring blocks [first, end), with one rule for what forward keeps of them.
struct Segment {
  size_t first = 0;
  size_t end = 0;
  bool recompute = false;  // save the first block's input only, and run forward again in backward
  bool trained = true;     // false: before the first trained block; backward does not reach it
  bool operator==(const Segment&) const = default;
};

// A ModelChunk is the neighboring blocks that an operation runs: its segments, in order.
using ModelChunk = std::vector<Segment>;

// Each block is in one chunk. Micro-batches begin and end in their order.
struct StepSchedule {
  std::vector<ModelChunk> chunks;
  std::vector<PipeOp> ops;
  size_t period = 0;          // operations after which the same ones follow for later micro-batches
  int64_t max_in_flight = 1;  // micro-batches that have begun and not ended, at most
};

// Returns the step of `config` with this many micro-batches, at least one. 1F1B runs one
// micro-batch after the other through the chain, which is one chunk. Breadth-first runs all
// micro-batches through a block before the next block, so that a block is gathered or read once per
// pass of the step; the last block alternates between forward and backward. Every block is then a
// chunk, and a segment no longer than one. Blocks before `first_trained` are in segments of which
// nothing is saved. The segment of the last block is never recomputed: its backward follows its
// forward at once, so that would save no memory.
StepSchedule plan_step(size_t num_blocks, const configs::Config& config, int64_t micro_batches,
                       size_t first_trained = 0);

// Returns the blocks that `passes` forward passes without backward gather, in order.
std::vector<size_t> forward_accesses(size_t num_blocks, int64_t passes);

// Returns the blocks that the operations of two periods from `begin` gather, in order; one that
// several of them use in a row counts once.
std::vector<size_t> block_accesses(const StepSchedule& schedule, size_t begin = 0);

// Calls `visit` with each of the chunk's trained segments as backward reaches them.
void for_each_backward(const ModelChunk& chunk, const std::function<void(const Segment&)>& visit);

// Returns the trained blocks in the order of their backward passes, once for each micro-batch.
std::vector<size_t> backward_order(const StepSchedule& schedule);

// Returns the largest number of inputs of recomputed segments that are saved at a time.
int64_t max_saved_inputs(const StepSchedule& schedule);

}  // namespace zeroth::engine
