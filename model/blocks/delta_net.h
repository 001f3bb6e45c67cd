// The gated delta net of a layer, in place of attention (Qwen3-Next, Qwen3.5).
#pragma once

#include <torch/nn/module.h>

#include <cstdint>
#include <memory>
#include <string>

#include "device/tensor.h"
#include "model/blocks/linear.h"
#include "model/blocks/mixer.h"
#include "model/blocks/norm.h"
#include "model/blocks/sequence_tables.h"
#include "model/micro_batch.h"
#include "model/spec.h"
#include "model/tensor_parallel.h"

namespace zeroth::model {

class DeltaNet : public Mixer {
 public:
  // The ranks of `tp` split the key heads, which their value heads follow. Parameters are products,
  // `conv.weight` [channels of q, k and v, 1, kernel], which ranks have as `conv.q`, `conv.k` and
  // `conv.v`, `A_log` and `dt_bias` [value heads], and `norm.weight` [value_dim].
  DeltaNet(const ModelSpec& spec, std::shared_ptr<SequenceTables> tables, TensorParallelPtr tp);

  torch::Tensor mix(const torch::Tensor& x, const MicroBatch& batch) override;
  Splits splits(const std::string& prefix) const override;

 private:
  struct Inputs {
    torch::Tensor qkv;   // [batch, seq, channels], before the convolution
    torch::Tensor z;     // [batch, seq, value_heads, value_dim]
    torch::Tensor b, a;  // [batch, seq, value_heads]
  };
  void register_products(const ModelSpec& spec);
  void register_convolution();
  Inputs project(const torch::Tensor& x, const MicroBatch& batch) const;
  torch::Tensor convolution() const;  // its weights

  DeltaNetSpec spec_;  // of this rank's heads
  int64_t full_key_heads_, first_key_head_;
  // Channels that belong to a key head: of its k, as of its q, and of the v of its value heads.
  int64_t keys_of_head_, values_of_head_;
  TensorParallelPtr tp_;
  std::shared_ptr<SequenceTables> tables_;
  std::shared_ptr<Linear> qkvz_, ba_;        // both, or those that follow
  std::shared_ptr<Linear> qkv_, q_, k_, v_;  // qkv on one rank, the others on several
  std::shared_ptr<Linear> z_, b_, a_;
  std::vector<torch::Tensor> conv_;  // one weight, or those of q, k and v
  torch::Tensor A_log_, dt_bias_;
  std::shared_ptr<Norm> norm_;
};

}  // namespace zeroth::model
