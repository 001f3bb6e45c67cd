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
    return experts_ ? experts_->keep_in_fp32("mlp.") : std::vector<std::string>();
  }
  std::optional<Splits> splits() const override {
    if (!tp_) return std::nullopt;
    Splits splits = linear_splits(*this);
    splits.merge(mixer_->splits(mixer_name_ + "."));
    if (experts_) splits.merge(experts_->splits("mlp."));
    return splits;
  }

 private:
  // Returns what a half of the layer adds to the residual stream.
  torch::Tensor addend(const torch::Tensor& y, const std::shared_ptr<Norm>& norm,
                       const DropoutSite& site, const MicroBatch& batch) const;
  torch::Tensor feed_forward(const torch::Tensor& x, const MicroBatch& batch) const;
  torch::Tensor forward_parallel(const torch::Tensor& x, const MicroBatch& batch);

  TensorParallelPtr tp_;
  double residual_multiplier_;
  bool parallel_residual_;
  DropoutSite attention_dropout_, mlp_dropout_;  // of each half's output, before the residual sum
  std::shared_ptr<Norm> attention_norm_, attention_post_norm_;  // null where there is none
  std::string mixer_name_;
  std::shared_ptr<Mixer> mixer_;
  std::shared_ptr<Norm> mlp_norm_, mlp_post_norm_;
  std::shared_ptr<Mlp> mlp_;          // null in a layer with experts
  std::shared_ptr<Experts> experts_;  // null in one without
};

}  // namespace zeroth::model
