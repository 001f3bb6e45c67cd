// What the ranks tell each other at the end of a step, in one collective.
#pragma once

#include <torch/types.h>

#include <cstdint>

#include "engine/step_batches.h"

namespace zeroth::engine {

// Of one rank, or added up over all.
struct StepSums {
  double loss = 0;     // divided by LossDivisor
  double squares = 0;  // of the gradients' elements
  int64_t ends = 0;    // ranks whose Loader wants training to end
  int64_t unused = 0;  // ranks that left a parameter without a gradient
  StepCounts counts;
};

// fp64, on the device of `loss` and `squares`, scalars that stand in place of own's. The host does
// not wait for them.
torch::Tensor to_tensor(const torch::Tensor& loss, const torch::Tensor& squares,
                        const StepSums& own);

// Waits for a GPU.
StepSums from_tensor(const torch::Tensor& sums);

}  // namespace zeroth::engine
