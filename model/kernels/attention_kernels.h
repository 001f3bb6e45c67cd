// Attention by kernels of our own: in tiles on processors that multiply small tiles fast
// (cpu_attention.cpp), and with dropped probabilities by formula (dropout_attention.cpp).
#pragma once

#include <cstdint>
#include <vector>

#include "device/tensor.h"
#include "model/kernels/dropout.h"

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

struct DropoutAttentionOptions {
  double scale = 1;
  DropoutSite site;
  std::vector<int64_t> row_seeds;  // one per row of the batch
  // The range that q's heads are in, if other ranks have the rest; total_heads is 0 if q has all.
  int64_t first_head = 0;
  int64_t total_heads = 0;
};

// Returns dropout(softmax(q k^T scale + mask)) v as [batch, seq, heads, head_dim]; the softmax is
// in fp32. q is [batch, seq, heads, head_dim], k and v are [batch, seq, kv_heads, head_dim], mask
// [seq, seq] is added to the scores, in q's dtype. Line t * heads + h of the site's mask belongs to
// query t of head h of all heads. Keeps its inputs only; the scores of one row of the batch [heads,
// seq, seq] are in memory at once.
torch::Tensor dropout_attention(const torch::Tensor& q, const torch::Tensor& k,
                                const torch::Tensor& v, const torch::Tensor& mask,
                                const DropoutAttentionOptions& options);

}  // namespace zeroth::model
