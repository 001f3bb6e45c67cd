// Causal self-attention with grouped key and value heads.
#pragma once

#include <torch/nn/module.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "device/tensor.h"
#include "model/blocks/latent_projection.h"
#include "model/blocks/linear.h"
#include "model/blocks/mixer.h"
#include "model/blocks/norm.h"
#include "model/blocks/rope.h"
#include "model/blocks/sequence_tables.h"
#include "model/kernels/attention_kernels.h"
#include "model/kernels/dropout.h"
#include "model/micro_batch.h"
#include "model/spec.h"
#include "model/tensor_parallel.h"

namespace zeroth::model {

// GpuAttention holds the properties that decide which of LibTorch's attention kernels a GPU runs.
struct GpuAttention {
  torch::Dtype dtype = torch::kBFloat16;
  int64_t head_dim = 0;
  bool masked = false;  // by a tensor
  bool trains = false;  // gradients are required
  int capability = 0;   // 90 for a GPU of 9.0
};

// Returns whether that kernel is cuDNN's or flash attention, which reads keys and values that
// several query heads share. If it is not, the caller must repeat them: LibTorch would fall back to
// the formula, whose scores fill [heads, seq, seq]. The rule is from LibTorch 2.11's sdp_utils.cpp:
// cuDNN and flash attention share keys and values for 16-bit types without a mask, on
// capability 8.0 or later and for head sizes up to 256. Flash attention has no backward for head
// sizes 193 to 224 on 8.6, 8.9 and 12.x.
bool gpu_supports_gqa(const GpuAttention& call);

// KeysValues are a layer's keys and values, [batch, seq, heads, head_dim], of this rank's heads, as
// attention reads them.
struct KeysValues {
  torch::Tensor k, v;
};

class Attention : public Mixer {
 public:
  // `dropout` is the site at which probabilities are dropped. The ranks of `tp` split the heads.
  Attention(const ModelSpec& spec, int64_t layer, std::shared_ptr<SequenceTables> tables,
            const DropoutSite& dropout = {}, TensorParallelPtr tp = nullptr);

  torch::Tensor mix(const torch::Tensor& x, const MicroBatch& batch) override;
  // Reads the keys and values of LayerSpec::kv_layer, or, without one, returns its own in `kv`.
  torch::Tensor mix(const torch::Tensor& x, const MicroBatch& batch, KeysValues& kv);
  Splits splits(const std::string& prefix) const override;

 private:
  using Heads = AttentionInputs;
  // A `HeadRange` is the range of full heads that this rank has of a product's outputs.
  struct HeadRange {
    int64_t first, heads, total;
    int num_replicas;  // see Split::num_replicas
  };
  HeadRange queries(const ModelSpec& spec) const;
  HeadRange keys(int64_t all) const;  // of so many heads
  void register_inputs(const ModelSpec& spec);
  void register_norms(const ModelSpec& spec);
  Heads project(const torch::Tensor& x, const MicroBatch& batch) const;
  void normalize_all(Heads& heads) const;
  void normalize_each(Heads& heads) const;
  // Returns the angles of the layer's rotary embeddings, which must have some.
  RopeTable::Angles angles(const MicroBatch& batch, int64_t seq, const torch::Tensor& like);
  // Returns the factors of the queries, [1 or batch, seq, 1, 1].
  torch::Tensor scale_queries(const torch::Tensor& q, const MicroBatch& batch) const;
  torch::Tensor sinks() const;
  const torch::Tensor& slopes(torch::Device device);
  // Returns the first token that each one sees; undefined: the row's.
  torch::Tensor visible_from(int64_t seq, const MicroBatch& batch);
  bool is_in_chunks(int64_t seq) const { return layer_.chunk > 0 && seq > layer_.chunk; }
  // Returns what attend() returns, times the gate, as the input of the output product.
  torch::Tensor attend_gated(const Heads& heads, const MicroBatch& batch);
  // Returns [batch, seq, heads * head_dim].
  torch::Tensor attend(const Heads& heads, const MicroBatch& batch);
  torch::Tensor attend_by_formula(const Heads& heads, const MicroBatch& batch);

  TensorParallelPtr tp_;
  HeadRange queries_, keys_;
  int64_t head_dim_;
  QkvLayout qkv_layout_;
  LayerSpec layer_;
  bool gated_;  // ModelSpec::gated_attention
  double scale_, softcap_;
  std::optional<double> clip_;
  std::optional<QueryScale> query_scale_;
  bool normalizes_all_;  // q and k, over all heads
  bool norm_after_rope_;
  DropoutSite dropout_;
  std::shared_ptr<SequenceTables> tables_;
  std::shared_ptr<Linear> q_, k_, v_;  // used unless qkv_ is; see LayerSpec::k_is_v and kv_layer
  std::shared_ptr<Linear> qkv_;
  std::shared_ptr<LatentProjection> latent_;  // set: in place of all of them
  std::shared_ptr<Norm> q_norm_, k_norm_, v_norm_;
  std::shared_ptr<SplitNorm> split_q_norm_, split_k_norm_;  // over all heads, on several ranks
  torch::Tensor sinks_;                                     // [heads of this rank]
  torch::Tensor slopes_;  // CausalAttention::slopes, of this rank's heads; where it was last used
};

}  // namespace zeroth::model
