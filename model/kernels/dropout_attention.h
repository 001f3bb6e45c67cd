// Attention whose probabilities are dropped: by formula, one row of the batch at a time.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <vector>

#include "model/kernels/dropout.h"

namespace zeroth::model {

struct DropoutAttentionOptions {
  double scale = 1;
  DropoutSite site;
  std::vector<int64_t> row_seeds;  // one per row of the batch
  // Those of q where other ranks have the rest; 0: they are all.
  int64_t first_head = 0;
  int64_t total_heads = 0;
};

// q [batch, seq, heads, head_dim], k and v [batch, seq, kv_heads, head_dim], mask [seq, seq] added
// to the scores, in q's dtype. dropout(softmax(q k^T scale + mask)) v as [batch, seq, heads,
// head_dim]; the softmax in fp32. Line t * heads + h of the site's mask belongs to query t of head
// h of all heads. Keeps its inputs only; scores of one row of the batch [heads, seq, seq] stand in
// memory at once.
torch::Tensor dropout_attention(const torch::Tensor& q, const torch::Tensor& k,
                                const torch::Tensor& v, const torch::Tensor& mask,
                                const DropoutAttentionOptions& options);

}  // namespace zeroth::model
