// Pipeline schedules: the passes of a step's micro-batches through the chunks of a rank, in order,
// as data. Pure.
//
// A pipeline of p ranks and v chunks per rank cuts the chain of blocks into p * v virtual stages.
// Virtual stage s is chunk s / p of rank s % p; in ZBV, which goes there and back, rank r has the
// virtual stages r and 2p - 1 - r. A rank is one of p: its coordinate in mesh dim pp. Sources: 1F1B
// and its interleaved form, arXiv 2104.04473; zero bubble (ZB-H1), arXiv 2401.10241; ZBV, arXiv
// 2405.15362; breadth-first, arXiv 2211.05953.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "configs/pipeline_config.h"

namespace zeroth::engine {

enum class PipeOpKind {
  kForward,
  kBackward,        // gradients of the input and of the weights
  kBackwardInput,   // of the input alone
  kBackwardWeight,  // of the weights, some time after kBackwardInput
};

// A PipeOp is a pass of a micro-batch through a chunk of this rank. Both count from 0.
struct PipeOp {
  PipeOpKind kind = PipeOpKind::kForward;
  int64_t micro_batch = 0;
  size_t chunk = 0;
  bool operator==(const PipeOp&) const = default;
};

struct PipelineShape {
  int64_t ranks = 1;
  int64_t chunks = 1;  // of each rank
  int64_t micro_batches = 1;

  int64_t virtual_stages() const { return ranks * chunks; }
};

// Returns the operations of `rank`. Every schedule runs the passes of one kind through a chunk in
// the order of the micro-batches, so that sums of gradients do not depend on it. 1F1B, GPipe and
// ZB-H1 have one chunk per rank, ZBV two.
std::vector<PipeOp> pipeline_ops(configs::PipelineConfig::Schedule schedule,
                                 const PipelineShape& shape, int64_t rank);

// Returns the virtual stage of the rank's chunk.
int64_t virtual_stage_of(configs::PipelineConfig::Schedule schedule, const PipelineShape& shape,
                         int64_t rank, size_t chunk);
// Returns the rank that has the virtual stage.
int64_t rank_of(configs::PipelineConfig::Schedule schedule, const PipelineShape& shape,
                int64_t virtual_stage);

}  // namespace zeroth::engine
