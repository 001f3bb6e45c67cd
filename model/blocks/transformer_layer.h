// One layer of the transformer: a mixer, such as attention, and an MLP, each applied to a
// normalized input and added to the residual stream.
#pragma once

#include <torch/nn/module.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "device/tensor.h"
#include "model/block.h"
#include "model/blocks/attention.h"
#include "model/blocks/experts.h"
#include "model/blocks/linear.h"
#include "model/blocks/mixer.h"
#include "model/blocks/mlp.h"
#include "model/blocks/norm.h"
#include "model/spec.h"
#include "model/tensor_parallel.h"

namespace zeroth::model {

class TransformerLayer : public Block {
 public:
  TransformerLayer(const ModelSpec& spec, int64_t index, std::shared_ptr<SequenceTables> tables,
                   const TensorParallelPtr& tp = nullptr);

  torch::Tensor forward(const torch::Tensor& x, const MicroBatch& batch) override;
  bool accumulates_grads() const override { return true; }
  int64_t num_experts() const override { return experts_ ? experts_->num_experts() : 0; }
  std::vector<std::string> keep_in_fp32() const override {
    return experts_ ? experts_->keep_in_fp32(experts_name_ + ".") : std::vector<std::string>();
  }
  std::optional<Splits> splits() const override {
    if (!tp_) return std::nullopt;
    Splits splits = linear_splits(*this);
    splits.merge(mixer_->splits(mixer_name_ + "."));
    if (experts_) splits.merge(experts_->splits(experts_name_ + "."));
    return splits;
  }

 private:
  // Returns what a half of the layer adds to the residual stream.
  torch::Tensor addend(const torch::Tensor& y, const std::shared_ptr<Norm>& norm,
                       const DropoutSite& site, const MicroBatch& batch) const;
  // Returns the outputs of MLP and experts. x is the residual stream `stream`, normalized.
  torch::Tensor feed_forward(const torch::Tensor& x, const torch::Tensor& stream,
                             const MicroBatch& batch) const;
  // Returns the hidden state after the layer, which attends with `kv` (Attention::mix).
  torch::Tensor forward_hidden(const torch::Tensor& x, const torch::Tensor& per_layer_input,
                               KeysValues& kv, const MicroBatch& batch);
  torch::Tensor forward_parallel(const torch::Tensor& x, const MicroBatch& batch);
  // Returns whether ranks can reduce the outputs of both halves as one sum.
  bool can_sum_halves(const MicroBatch& batch) const;
  // Return keys and values as a part of the block's output, and such a part as keys and values.
  torch::Tensor pack(const KeysValues& kv) const;
  KeysValues unpack(const torch::Tensor& packed, const MicroBatch& batch) const;

  TensorParallelPtr tp_;
  int64_t index_;
  LayerSpec layer_;
  int64_t head_dim_;
  CarriedStates carried_, carried_out_;  // behind the hidden state in the input, and in the output
  std::vector<int64_t> input_sizes_;
  double residual_multiplier_;
  bool parallel_residual_;
  DropoutSite attention_dropout_, mlp_dropout_;  // of each half's output, before the residual sum
  std::shared_ptr<Norm> attention_norm_, attention_post_norm_;  // null where there is none
  std::string mixer_name_, experts_name_;
  std::shared_ptr<Mixer> mixer_;
  std::shared_ptr<Attention> attention_;  // the mixer, if layers share its keys and values
  std::shared_ptr<Norm> mlp_norm_, mlp_post_norm_;
  std::shared_ptr<Mlp> mlp_;          // null in a layer with experts, unless they are beside it
  std::shared_ptr<Experts> experts_;  // null in one without
  // Set if both are: of the MLP's output, and of the experts' input and output.
  std::shared_ptr<Norm> mlp_branch_norm_, experts_norm_, experts_post_norm_;
  // Set if the layer has an input of its own.
  std::shared_ptr<Linear> per_layer_gate_, per_layer_projection_;
  std::shared_ptr<Norm> per_layer_norm_;
  Activation activation_;
  torch::Tensor layer_scalar_;  // undefined without
};

}  // namespace zeroth::model
