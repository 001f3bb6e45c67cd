// Cross-entropy of a projection onto the vocabulary, without ever holding all logits of a large
// one.
#pragma once

#include <torch/types.h>

#include <cstdint>

namespace zeroth::model {

struct HeadLossOptions {
  double trained_tokens = 1;  // the sum over tokens is divided by it
  // Most logits at once, in the dtype of x; 0 chooses by device: 16Mi on the CPU, 64Mi on a GPU,
  // whose products need more rows. One chunk keeps them for the backward, several compute them
  // again.
  int64_t max_logits = 0;
};

// x [tokens, hidden] and weight [vocab, hidden] of one dtype, targets [tokens] int64 or kUntrained.
// Returns the fp32 scalar loss: exactly 0 with zero gradients when no token is trained. Its
// backward runs once and adds to an open gradient of `weight` in place.
torch::Tensor head_loss(const torch::Tensor& x, const torch::Tensor& weight,
                        const torch::Tensor& targets, const HeadLossOptions& options);

}  // namespace zeroth::model
