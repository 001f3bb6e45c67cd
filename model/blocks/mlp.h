// The feed-forward of a layer without experts, or the expert that all tokens pass, and its
// activation.
#pragma once

#include <torch/nn/module.h>

#include <cstdint>
#include <memory>

#include "device/tensor.h"
#include "model/blocks/linear.h"
#include "model/micro_batch.h"
#include "model/spec.h"
#include "model/tensor_parallel.h"

namespace zeroth::model {

// Returns whether gate_by() is one pass that keeps only its inputs: with kSilu and kGeluTanh.
bool is_fused(Activation activation);
// Returns activation(gate) * up, of two tensors of one shape. The activation has no parameters.
torch::Tensor gate_by(Activation activation, const torch::Tensor& gate, const torch::Tensor& up);

// Xielu is an activation with trained factors (arXiv 2411.13010): a parabola above 0, and a shifted
// exponential below.
class Xielu : public torch::nn::Module {
 public:
  // Parameters are `alpha_p` and `alpha_n` [1], and the constants `beta` and `eps` [], which are
  // not trained. They are full on every tensor-parallel rank.
  Xielu();

  // Returns a tensor in the shape and dtype of x; it is computed in fp32.
  torch::Tensor forward(const torch::Tensor& x) const;

 private:
  torch::Tensor alpha_p_, alpha_n_, beta_, eps_;
};

class Mlp : public torch::nn::Module {
 public:
  // `size` is the intermediate size, which the ranks of `tp` split.
  Mlp(const ModelSpec& spec, int64_t size, const TensorParallelPtr& tp = nullptr);

  // Returns a tensor in the shape of x [..., hidden].
  torch::Tensor forward(const torch::Tensor& x, const MicroBatch& batch) const {
    return linear(inner(x, batch), *down_, batch);
  }
  // Returns the input of the down product.
  torch::Tensor inner(const torch::Tensor& x, const MicroBatch& batch) const;
  const Linear& down() const { return *down_; }

 private:
  torch::Tensor activate(const torch::Tensor& x) const;

  Activation activation_;
  std::shared_ptr<Xielu> xielu_;     // the activation, if it has parameters
  std::shared_ptr<Linear> gate_;     // null if the MLP is not gated
  std::shared_ptr<Linear> gate_up_;  // set: in place of gate and up
  std::shared_ptr<Linear> up_;
  std::shared_ptr<Linear> down_;
};

}  // namespace zeroth::model
