// What mixes the tokens of a sequence without scores: a short convolution of each channel.
// `first_keys` are as in MicroBatch, but on the device of the other inputs.
#pragma once

#include "device/tensor.h"

namespace zeroth::model {

struct CausalConv {
  // [batch, seq] int64 on the device of x: the first token of its row that each token sees.
  // Undefined: 0.
  torch::Tensor first_keys = {};
  bool silu = false;  // of the sums
};

// Returns y in the shape of x [batch, seq, channels]: for each channel the sum of the last k tokens
// up to each one, of those that it sees, times weight [channels, 1, k], whose last element is that
// of the token itself. Sums are in fp32. Keeps only its inputs.
torch::Tensor causal_conv(const torch::Tensor& x, const torch::Tensor& weight,
                          const CausalConv& options = {});

}  // namespace zeroth::model
