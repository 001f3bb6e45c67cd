// The micro-batches of one step, agreed between the ranks before it begins.
#pragma once

#include <cstdint>
#include <vector>

#include "comm/mesh.h"
#include "configs/config.h"
#include "engine/loader.h"

namespace zeroth::engine {

struct StepBatches {
  std::vector<model::MicroBatch> micro_batches;  // on the mesh's device
  std::vector<int64_t> trained_in;               // trained tokens of each of them
  int64_t tokens = 0;                            // positions, over all ranks
  int64_t trained_tokens = 0;                    // over all ranks
  int64_t trained_micro_batches = 0;             // that have a trained token, over all ranks
};

// What the sum of losses over the trained tokens of this rank's micro-batch `index` is divided by,
// so that the micro-batches of all ranks add up to the step's mean.
double loss_divisor(const StepBatches& step, size_t index, configs::LossMean mean);

// Draws `count` micro-batches on this rank; the sums are this rank's own.
StepBatches draw_local(Loader& data, int64_t count, torch::Device device);

// Draws `count` micro-batches on every rank and sums their trained tokens over the ranks.
// Collective.
StepBatches draw_batches(Loader& data, int64_t count, comm::Mesh& mesh);

// Throws an Error that names the samples of the global batch when it has no trained token.
// Collective.
void require_trained_tokens(const StepBatches& batches, int64_t step, comm::Mesh& mesh);

}  // namespace zeroth::engine
