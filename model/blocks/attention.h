// Causal self-attention with grouped key and value heads.
#pragma once

#include <torch/nn/module.h>
#include <torch/types.h>

#include <cstdint>
#include <memory>

#include "model/blocks/linear.h"
#include "model/blocks/norm.h"
#include "model/blocks/rope.h"
#include "model/kernels/dropout.h"
#include "model/micro_batch.h"
#include "model/spec.h"
#include "model/tensor_parallel.h"

namespace zeroth::model {

// What decides which of LibTorch's attention kernels a GPU runs.
struct GpuAttention {
  torch::Dtype dtype = torch::kBFloat16;
  int64_t head_dim = 0;
  bool masked = false;  // by a tensor
  bool trains = false;  // gradients are wanted
  int capability = 0;   // 90 for a GPU of 9.0
};

// Whether that kernel reads keys and values which several heads of queries share. Where it does
// not, they have to be repeated: asked for shared ones, LibTorch takes the formula, whose scores
// fill [heads, seq, seq]. The rule of LibTorch 2.11's sdp_utils.cpp: cuDNN and flash attention
// share, for 16-bit types without a mask, from 8.0 on and up to a head size of 256. Flash attention
// has no backward of head sizes 193 to 224 on 8.6, 8.9 and 12.x.
bool gpu_supports_gqa(const GpuAttention& call);

// The additive mask of a window, remembered for the last length asked for. Not thread-safe.
class WindowMask {
 public:
  // window: how many tokens a token sees, itself included; 0: all before it.
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
      : rope(spec.rope, spec.head_dim, spec.max_positions),
        causal(0),
        window(spec.sliding_window) {}

  RopeTable rope;
  WindowMask causal;
  WindowMask window;
};

class Attention : public torch::nn::Module {
 public:
  // `drop` is where probabilities are dropped. Several `ranks` share the heads.
  Attention(const ModelSpec& spec, int64_t layer, std::shared_ptr<SequenceTables> tables,
            const DropoutSite& dropout = {}, TensorParallelPtr tp = nullptr);

  // x [batch, seq, hidden], or this rank's run of tokens [rows, hidden] -> the same shape.
  torch::Tensor forward(const torch::Tensor& x, const MicroBatch& batch);

 private:
  struct Heads {
    torch::Tensor q, k, v;  // [batch, seq, heads, head_dim]
    Heads widened() const;  // in fp32
  };
  // How a product's outputs, whole heads each, are cut: `heads` of them from `first` on.
  struct HeadRange {
    int64_t first, heads;
    int num_replicas;  // as Split::num_replicas
  };
  HeadRange queries(const ModelSpec& spec) const;
  HeadRange keys(const ModelSpec& spec) const;
  void register_inputs(const ModelSpec& spec);
  Heads project(const torch::Tensor& x, const MicroBatch& batch) const;
  // [batch, seq, heads * head_dim]
  torch::Tensor attend(const Heads& heads);
  torch::Tensor attend_with_dropout(const Heads& heads, const MicroBatch& batch);

  TensorParallelPtr tp_;
  int64_t num_heads_;   // this rank's
  int64_t first_head_;  // of all
  int64_t total_heads_;
  int64_t head_dim_;
  int64_t window_;
  double scale_;
  bool rotary_;
  DropoutSite dropout_;
  std::shared_ptr<SequenceTables> tables_;
  std::shared_ptr<Linear> q_, k_, v_;  // or
  std::shared_ptr<Linear> qkv_;
  std::shared_ptr<Linear> o_;
  std::shared_ptr<Norm> q_norm_, k_norm_;
};

}  // namespace zeroth::model
