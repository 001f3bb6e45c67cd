// What mixes the tokens of a sequence without scores: a short convolution of each channel, and the
// gated delta rule (arXiv 2412.06464). `first_keys` are as in MicroBatch, but on the device of the
// other inputs.
#pragma once

#include <cstdint>

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

struct DeltaRuleInputs {
  torch::Tensor q, k;   // [batch, seq, key_heads, key_dim]
  torch::Tensor v;      // [batch, seq, value_heads, value_dim], a multiple of key_heads
  torch::Tensor decay;  // [batch, seq, value_heads] fp32: logarithms, at most 0
  torch::Tensor beta;   // [batch, seq, value_heads] fp32: shares of the corrections
};

struct DeltaRuleOptions {
  // [batch, seq] int64, on the device: the first token of its row that each token sees, where its
  // state begins. Undefined: 0.
  torch::Tensor first_keys = {};
  // A few key heads are computed at a time, one at least, so that no temporary has more elements.
  // The backward has about 30 of them. 0: a number that suits the device.
  int64_t max_temporary = 0;
};

// Returns the outputs of v's shape and dtype. Each value head has a state S [key_dim, value_dim],
// zero at first, of which a token makes S' = exp(decay) S, then S = S' + beta k (v - k^T S')^T, and
// returns S^T q / sqrt(key_dim). q and k are divided by their lengths first; neighboring value
// heads share them.
//
// Computes in fp32, as transformers does: tokens of a chunk together, chunk after chunk. Keeps only
// its inputs; the backward computes the rest again.
torch::Tensor gated_delta_rule(const DeltaRuleInputs& inputs, const DeltaRuleOptions& options = {});

}  // namespace zeroth::model
