// Attention on processors that multiply small tiles fast: no tensor of size [seq, seq] is in
// memory, and neither keys nor the mask of a window are copied.
#pragma once

#include <torch/types.h>

#include <cstdint>

namespace zeroth::model {

struct CausalAttention {
  double scale = 1;
  int64_t window = 0;  // number of tokens that a token sees, itself included; 0: all before it
};

// Returns whether cpu_attention() supports q: fp32, bf16 or fp16 on a CPU with AVX2, head_dim a
// multiple of 16 and at most 256.
bool cpu_attention_supports(const torch::Tensor& q);

// Returns softmax(q k^T scale) v as [batch, seq, heads, head_dim]. q has that shape, k and v are
// [batch, seq, kv_heads, head_dim]; heads / kv_heads neighboring query heads share each of theirs.
// Softmax and sums are in fp32. The result is bit-equal for any number of threads.
torch::Tensor cpu_attention(const torch::Tensor& q, const torch::Tensor& k, const torch::Tensor& v,
                            const CausalAttention& options);

}  // namespace zeroth::model
