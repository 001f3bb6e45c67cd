// The micro-batches of one step, and the mean that their losses add up to.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <vector>

#include "comm/mesh.h"
#include "configs/config.h"
#include "engine/loader.h"

namespace zeroth::engine {

// Ranks that share a layer get the same batch, and each has the whole loss of it: one of them tells
// it, the others add zero.
bool tells_batch(const comm::Mesh& mesh);

// Of one rank, or added up over all.
struct StepCounts {
  int64_t tokens = 0;  // positions
  int64_t trained_tokens = 0;
  int64_t trained_micro_batches = 0;  // that have a trained token
};

// Of one rank.
struct StepBatches {
  std::vector<model::MicroBatch> micro_batches;  // on the mesh's device
  std::vector<int64_t> trained_in;               // trained tokens of each of them
  std::vector<int64_t> samples;                  // the numbers of all
  StepCounts counts;
};

// Draws `count` micro-batches on this rank.
StepBatches draw_batches(Loader& data, int64_t count, torch::Device device);

// How many trained tokens the ranks have is known when they add up their losses, at the end of a
// step; a GPU would have to be waited for to know it before. Until then all divide by a power of
// two near the usual count, so that losses and gradients of all ranks and micro-batches add up to
// the step's mean but for correction(). Division by a power of two is exact, so that it leaves no
// trace in their bits which count was usual: a run that goes on from a checkpoint may find another.
class LossDivisor {
 public:
  // `usual`: positions of a step over all ranks, for a mean of micro-batches their number; the same
  // on all ranks.
  LossDivisor(configs::LossMean mean, int64_t usual);

  // Makes the same divisor again, whatever the run's configuration is by then.
  int64_t usual() const { return static_cast<int64_t>(usual_); }

  // For the sum of losses over the trained tokens of one micro-batch.
  double of(int64_t trained_in_micro_batch) const;
  // `all`: of a step that has a trained token.
  double correction(const StepCounts& all) const;

 private:
  configs::LossMean mean_;
  double usual_;
};

// From what the ranks drew first. Collective.
LossDivisor agree_on_divisor(const StepBatches& first, const configs::Config& config,
                             comm::Mesh& mesh);

// Throws an Error that names the samples of the global batch. Collective.
[[noreturn]] void refuse_untrained(const StepBatches& batches, int64_t step, comm::Mesh& mesh);

// Of one rank, or added up over all. Loss and counts of ranks that tell their batch.
struct StepSums {
  double loss = 0;      // divided by LossDivisor
  double squares = 0;   // of the gradients' elements
  int64_t ends = 0;     // ranks whose Loader wants training to end
  int64_t saves = 0;    // ranks whose Loader wants the run to be saved
  int64_t writing = 0;  // ranks whose checkpoint beside training is not written yet
  int64_t unused = 0;   // ranks that left a parameter without a gradient
  StepCounts counts;
};

// fp64, on the device of `loss` and `squares`, scalars that stand in place of own's. The host does
// not wait for them.
torch::Tensor to_tensor(const torch::Tensor& loss, const torch::Tensor& squares,
                        const StepSums& own);

// Waits for a GPU.
StepSums from_tensor(const torch::Tensor& sums);

}  // namespace zeroth::engine
