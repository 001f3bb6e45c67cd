// Router chooses the experts of each token.
#pragma once

#include <torch/nn/module.h>

#include <cstdint>
#include <memory>
#include <string>

#include "device/tensor.h"
#include "model/blocks/linear.h"
#include "model/blocks/norm.h"
#include "model/micro_batch.h"
#include "model/spec.h"
#include "model/tensor_parallel.h"

namespace zeroth::model {

class Router : public torch::nn::Module {
 public:
  // Parameters are `weight` [experts, hidden], and `bias` and `correction_bias` [experts] in
  // families that have them; with scales they are `scale` [hidden], `per_expert_scale` [experts]
  // and those of the Linear `proj`. They are full on every rank of `tp`. `block` is the label of
  // the block that it is in.
  Router(const ModelSpec& spec, std::string block, TensorParallelPtr tp);

  // A Choice has k experts for each of n tokens, and their weights.
  struct Choice {
    torch::Tensor experts;  // [n, k] int64
    torch::Tensor weights;  // [n, k] in the dtype of x
  };
  // Routes x [n, hidden], this rank's shard of the tokens, and counts what it does in
  // batch.router_sums. Tokens with equal scores go to the experts that at::topk chooses.
  Choice forward(const torch::Tensor& x, const MicroBatch& batch) const;

 private:
  // Returns [n, experts] fp32.
  torch::Tensor logits(const torch::Tensor& x, const MicroBatch& batch) const;
  torch::Tensor choose(const torch::Tensor& scores) const;
  // Counts, and returns the scores with the load balancing loss in their gradient.
  torch::Tensor count(const torch::Tensor& scores, const torch::Tensor& experts,
                      const MicroBatch& batch) const;

  RouterSpec spec_;
  std::string block_;
  int64_t num_experts_, top_k_;
  double aux_loss_coef_;
  TensorParallelPtr tp_;
  torch::Tensor weight_, bias_, correction_bias_, scale_, per_expert_scale_;
  std::shared_ptr<Norm> norm_;  // of the input; null without scales
  std::shared_ptr<Linear> proj_;
};

}  // namespace zeroth::model
