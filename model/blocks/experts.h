// Experts are the feed-forward of a layer in a mixture: each token passes a few of many MLPs, and
// one that all tokens pass.
#pragma once

#include <torch/nn/module.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "device/tensor.h"
#include "model/block.h"
#include "model/blocks/linear.h"
#include "model/blocks/mlp.h"
#include "model/blocks/router.h"
#include "model/micro_batch.h"
#include "model/spec.h"
#include "model/tensor_parallel.h"

namespace zeroth::model {

class Experts : public torch::nn::Module {
 public:
  // The ranks of `tp` divide the experts: each has whole ones, computes its part of every token's
  // sum, and the parts are added. Parameters are `experts.gate_up` [experts, 2 * size, hidden] and
  // `experts.down` [experts, hidden, size], or with in_out [experts, hidden, 2 * size] and
  // [experts, size, hidden], and their biases `experts.gate_up_bias` and `experts.down_bias`.
  // `block` is the label of the block that it is in. The activation is SiLU, GELU by tanh, or
  // gpt-oss's.
  Experts(const ModelSpec& spec, const std::string& block, TensorParallelPtr tp);

  int64_t num_experts() const { return spec_.num_experts; }

  // Returns a tensor in the shape of x [..., hidden]. The router reads `routed`, which has the
  // shape of x.
  torch::Tensor forward(const torch::Tensor& x, const torch::Tensor& routed,
                        const MicroBatch& batch) const;

  // See Block::keep_in_fp32().
  std::vector<std::string> keep_in_fp32(const std::string& prefix) const;
  // Returns the splits of the matrices, by names in the block.
  Splits splits(const std::string& prefix) const;

 private:
  torch::Tensor run_experts(const torch::Tensor& x, const Router::Choice& choice) const;

  ExpertsSpec spec_;
  Activation activation_;
  TensorParallelPtr tp_;
  int64_t first_, count_;  // this rank's experts
  std::shared_ptr<Router> router_;
  torch::Tensor gate_up_, down_, gate_up_bias_, down_bias_;
  std::shared_ptr<Mlp> shared_;          // null without one
  std::shared_ptr<Linear> shared_gate_;  // null without one
};

}  // namespace zeroth::model
