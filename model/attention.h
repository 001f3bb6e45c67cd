// Causal self-attention with grouped key and value heads.
#pragma once

#include <torch/nn/module.h>
#include <torch/types.h>

#include <cstdint>
#include <memory>

#include "model/linear.h"
#include "model/micro_batch.h"
#include "model/norm.h"
#include "model/rope.h"
#include "model/spec.h"

namespace zeroth::model {

// The additive mask of a sliding window, remembered for the last length asked for. Not thread-safe.
class WindowMask {
 public:
  explicit WindowMask(int64_t window) : window_(window) {}

  // [seq, seq]: 0 where a row sees a column, -inf elsewhere; in the dtype and on the device of
  // `like`.
  const torch::Tensor& get(int64_t seq, const torch::Tensor& like);

 private:
  int64_t window_;
  torch::Tensor cached_;
};

// What the layers of one chain share.
struct SequenceTables {
  explicit SequenceTables(const ModelSpec& spec)
      : rope(spec.rope, spec.head_dim, spec.max_positions), window(spec.sliding_window) {}

  RopeTable rope;
  WindowMask window;
};

class Attention : public torch::nn::Module {
 public:
  // window: how many tokens a token sees, itself included; 0: all before it.
  Attention(const ModelSpec& spec, int64_t window, std::shared_ptr<SequenceTables> tables);

  // x [batch, seq, hidden] -> the same shape.
  torch::Tensor forward(const torch::Tensor& x, const MicroBatch& batch);

 private:
  struct Heads {
    torch::Tensor q, k, v;  // [batch, seq, heads, head_dim]
  };
  Heads project(const torch::Tensor& x) const;
  torch::Tensor attend(const Heads& heads);  // [batch, seq, heads * head_dim]

  int64_t num_heads_;
  int64_t head_dim_;
  int64_t window_;
  double scale_;
  bool rotary_;
  std::shared_ptr<SequenceTables> tables_;
  std::shared_ptr<Linear> q_, k_, v_;  // or
  std::shared_ptr<Linear> qkv_;
  std::shared_ptr<Linear> o_;
  std::shared_ptr<Norm> q_norm_, k_norm_;
};

}  // namespace zeroth::model
