// Partition of the chain of blocks into the virtual stages of a pipeline.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "configs/pipeline_config.h"
#include "engine/step/pipeline_schedule.h"
#include "model/block.h"

namespace zeroth::engine {

// A PipelinePartition gives each virtual stage its blocks, and so each rank of mesh dim pp.
struct PipelinePartition {
  configs::PipelineConfig::Schedule schedule = configs::PipelineConfig::Schedule::k1F1B;
  int64_t ranks = 1;
  std::vector<size_t> ends;  // [virtual stage]: one past its last block

  // Returns the partition of a pipeline of one rank: one virtual stage, or, breadth first, one per
  // block.
  static PipelinePartition one_rank(size_t num_blocks, configs::PipelineConfig::Schedule schedule);

  size_t num_blocks() const { return ends.back(); }
  size_t begin(int64_t virtual_stage) const {
    return virtual_stage == 0 ? 0 : ends[static_cast<size_t>(virtual_stage) - 1];
  }
  PipelineShape shape(int64_t micro_batches) const {
    return {ranks, static_cast<int64_t>(ends.size()) / ranks, micro_batches};
  }
  // Returns per block the rank that has it; empty if there is one rank.
  std::vector<int> block_pp_ranks() const;
};

// Returns the ends of `parts` runs of neighboring weights, at least one weight each, of which the
// heaviest is as light as can be; among those partitions, one whose runs differ least.
std::vector<size_t> partition_balanced(const std::vector<double>& weights, size_t parts);

// Returns what blocks weigh by a PipelineConfig::partition. `times` are the seconds that each block
// takes, for "time"; empty: unknown, and the elements of a block's matrices stand for its time.
// Throws an Error that names the key if no block's type matches.
std::vector<double> block_weights(const model::Blocks& blocks, const std::string& partition,
                                  const std::vector<double>& times);

// Returns the partition that the config asks for. Throws an Error that names the key if there are
// fewer blocks than virtual stages, or like block_weights().
PipelinePartition partition_blocks(const model::Blocks& blocks,
                                   const configs::PipelineConfig& config,
                                   const std::vector<double>& times = {});

}  // namespace zeroth::engine
