// Kernels of attention beside LibTorch's scaled_dot_product_attention: in tiles on processors that
// multiply small tiles fast (cpu_attention.cpp), by the formula, which drops probabilities, too
// (formula_attention.cpp), and of packed samples on a GPU (varlen_attention.cpp).
#pragma once

#include <cstdint>
#include <vector>

#include "device/tensor.h"
#include "model/kernels/dropout.h"

namespace zeroth::model {

// CausalAttention determines what a query sees and how its scores q k^T become probabilities.
struct CausalAttention {
  double scale = 1;
  int64_t window = 0;  // number of tokens that a token sees, itself included; 0: all before it
  // [batch, seq] int64 on the CPU: the first token of the row that each token may see, itself at
  // most, as where a packed sample begins; undefined: 0.
  torch::Tensor first_keys = {};
  // A score s, with the scale, becomes softcap * tanh(s / softcap) (Gemma 2); 0: it stays.
  double softcap = 0;
  // [heads]: a score of each head that takes part in the softmax and has no value (gpt-oss);
  // undefined: none. It has a gradient.
  torch::Tensor sinks = {};
  // [heads] fp32 on the CPU: a score loses the slope of its head for each token by which the key is
  // before the query (ALiBi); undefined: nothing. Not with a softcap.
  torch::Tensor slopes = {};
};

// Returns whether cpu_attention() supports q and v: fp32, bf16 or fp16 on a CPU with AVX2, sizes of
// heads that are multiples of 16 and at most 512.
bool cpu_attention_supports(const torch::Tensor& q, const torch::Tensor& v);

// Returns softmax(scores) v as [batch, seq, heads, v_dim]. q is [batch, seq, heads, head_dim], k
// [batch, seq, kv_heads, head_dim], v [batch, seq, kv_heads, v_dim]; heads / kv_heads neighboring
// query heads share each of theirs. Softmax and sums are in fp32. The result is bit-equal for any
// number of threads. Throws an InternalError for first_keys or slopes that do not fit.
torch::Tensor cpu_attention(const torch::Tensor& q, const torch::Tensor& k, const torch::Tensor& v,
                            const CausalAttention& options);

// CuSeqlens are the cumulative lengths of the samples among the tokens of all rows, as flash
// attention takes them.
struct CuSeqlens {
  torch::Tensor offsets;  // [samples + 1] int32 on the device; the last one is the number of tokens
  int64_t max_length = 0;  // of a sample
};

// Returns them for first_keys as in CausalAttention.
CuSeqlens cu_seqlens(const torch::Tensor& first_keys, torch::Device device);

// Returns what cpu_attention() does with scale and window, on a GPU: by LibTorch's flash attention,
// which reads only the keys that a sample has. q, k and v are bf16 or fp16, of capability 8.0 or
// later (gpu_supports_gqa()); v_dim is head_dim, a multiple of 8.
torch::Tensor varlen_attention(const torch::Tensor& q, const torch::Tensor& k,
                               const torch::Tensor& v, const CuSeqlens& samples, double scale,
                               int64_t window);

struct FormulaAttentionOptions {
  double scale = 1, softcap = 0;
  torch::Tensor sinks = {};
  torch::Tensor slopes = {};               // as in CausalAttention, on q's device
  DropoutSite site = {};                   // p 0: nothing is dropped
  std::vector<SeededSample> samples = {};  // of the batch, if it drops
  // The range that q's heads are in, if other ranks have the rest; total_heads is 0 if q has all.
  int64_t first_head = 0;
  int64_t total_heads = 0;
};

// Returns dropout(softmax(scores + mask)) v like cpu_attention(), on any device and for any sizes;
// the softmax is in fp32. mask [seq, seq] or [batch, seq, seq] is in q's dtype. Element k of line t
// * heads + h of the site's mask belongs to query t of head h of all heads and to key k, both
// counted from the beginning of their sample. Keeps its inputs only; the scores of one row of the
// batch [heads, seq, seq] are in memory at once.
torch::Tensor formula_attention(const torch::Tensor& q, const torch::Tensor& k,
                                const torch::Tensor& v, const torch::Tensor& mask,
                                const FormulaAttentionOptions& options);

}  // namespace zeroth::model
