// Attention on processors that multiply small tiles fast: nothing of the size [seq, seq] stands in
// memory, and neither keys nor the mask of a window are copied.
#pragma once

#include <torch/types.h>

#include <cstdint>

namespace zeroth::model {

struct CausalAttention {
  double scale = 1;
  int64_t window = 0;  // how many tokens a token sees, itself included; 0: all before it
};

// Whether cpu_attention takes these: fp32, bf16 or fp16 on a CPU with AVX2, head_dim a multiple of
// 16 of at most 256.
bool cpu_attention_supports(const torch::Tensor& q);

// softmax(q k^T scale) v as [batch, seq, heads, head_dim]; q of that shape, k and v [batch, seq,
// kv_heads, head_dim], of which the query heads share each by heads / kv_heads neighbours. Softmax
// and sums in fp32. Bit-equal for any number of threads.
torch::Tensor cpu_attention(const torch::Tensor& q, const torch::Tensor& k, const torch::Tensor& v,
                            const CausalAttention& options);

}  // namespace zeroth::model
