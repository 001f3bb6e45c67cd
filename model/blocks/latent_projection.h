// The projection of latent attention (DeepSeek): queries, keys and values are products of short
// vectors.
#pragma once

#include <torch/nn/module.h>

#include <cstdint>
#include <memory>

#include "device/tensor.h"
#include "model/blocks/linear.h"
#include "model/blocks/norm.h"
#include "model/blocks/rope.h"
#include "model/micro_batch.h"
#include "model/spec.h"
#include "model/tensor_parallel.h"

namespace zeroth::model {

// AttentionInputs are q, k and v, [batch, seq, heads, size of a head], and the gate of the output,
// in the shape of q, if it has one.
struct AttentionInputs {
  torch::Tensor q, k, v;
  torch::Tensor gate = {};
  AttentionInputs widened() const;  // in fp32
};

class LatentProjection : public torch::nn::Module {
 public:
  // The ranks of `tp` split the heads; the short vectors are computed from each one's tokens.
  LatentProjection(const ModelSpec& spec, TensorParallelPtr tp);

  // Returns q, k and v of this rank's heads and the tokens of all ranks, rotated by `angles`.
  AttentionInputs forward(const torch::Tensor& x, const RopeTable::Angles& angles,
                          const MicroBatch& batch) const;

 private:
  LatentSpec spec_;
  TensorParallelPtr tp_;
  std::shared_ptr<Linear> q_, q_a_, q_b_;  // q, or the other two
  std::shared_ptr<Norm> q_norm_, kv_norm_;
  std::shared_ptr<Linear> kv_a_, kv_b_;
};

}  // namespace zeroth::model
