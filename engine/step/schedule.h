// Schedule: what a step runs on this rank, in order, as data.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "configs/config.h"
#include "engine/step/partition.h"
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

// Each block that the rank has is in one chunk. Micro-batches begin and end in their order.
struct StepSchedule {
  std::vector<ModelChunk> chunks;
  std::vector<PipeOp> ops;
  std::vector<int64_t> virtual_stages;  // [chunk]
  size_t num_blocks = 0;                // of the chain
  size_t period = 0;          // operations after which the same ones follow for later micro-batches
  int64_t max_in_flight = 1;  // micro-batches that have begun and not ended, at most

  // Returns the chunk's place among the chunks of all ranks, in the chain's order.
  int64_t chain_chunk(size_t chunk) const { return virtual_stages[chunk]; }
  // Returns whether the chunk ends with the last block of the chain.
  bool computes_loss(size_t chunk) const { return chunks[chunk].back().end == num_blocks; }
  // Returns whether the chunk's input comes from another rank.
  bool receives_input(size_t chunk) const {
    return virtual_stages[chunk] > 0 &&
           (chunk == 0 || virtual_stages[chunk - 1] + 1 != virtual_stages[chunk]);
  }
};

// Returns the step of `config` on a rank of the partition with this many micro-batches, at least
// one. With one rank, 1F1B runs one micro-batch after the other through the chain, which is one
// chunk. Breadth-first runs all micro-batches through a block before the next block, so that a
// block is gathered or read once per pass of the step; the last block alternates between forward
// and backward. No segment is longer than a chunk. Blocks before `first_trained` are in segments of
// which nothing is saved. The last segment of a chunk is not recomputed if its backward always
// follows its forward at once, as that would save no memory.
StepSchedule plan_step(const PipelinePartition& partition, const configs::Config& config,
                       int64_t micro_batches, size_t first_trained = 0, int64_t rank = 0);

// Returns the schedule of evaluations, of which only the forward passes are run: the partition's,
// or in place of breadth-first, which would keep what all micro-batches pass on, the interleaved
// one.
configs::PipelineConfig::Schedule evaluation_schedule(const PipelinePartition& partition);
// Returns the micro-batches that an evaluation runs at a time, after which no rank has anything of
// another one: one, or in a pipeline a few for each of its ranks, so that these wait little.
int64_t evaluation_group(const PipelinePartition& partition);
// Returns the forward passes of an evaluation on a rank of the partition.
StepSchedule plan_evaluation(PipelinePartition partition, int64_t micro_batches, int64_t rank);

// Returns the blocks that the operations of two periods from `begin` gather, in order; one that
// several of them use in a row counts once.
std::vector<size_t> block_accesses(const StepSchedule& schedule, size_t begin = 0);

// Calls `visit` with each of the chunk's trained segments as backward reaches them.
void for_each_backward(const ModelChunk& chunk, const std::function<void(const Segment&)>& visit);

// Returns whether the operation passes the gradients of a block of `num_blocks` to the reducer.
bool delivers_gradients(PipeOpKind kind, size_t block, size_t num_blocks);

// Returns the trained blocks in the order in which their gradients are passed to the reducer, once
// for each micro-batch.
std::vector<size_t> backward_order(const StepSchedule& schedule);

// Returns the largest number of inputs of recomputed segments that are saved at a time.
int64_t max_saved_inputs(const StepSchedule& schedule);

}  // namespace zeroth::engine
