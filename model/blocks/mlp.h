// The feed-forward half of a transformer layer.
#pragma once

#include <torch/nn/module.h>
#include <torch/types.h>

#include <memory>

#include "model/blocks/linear.h"
#include "model/spec.h"

namespace zeroth::model {

class Mlp : public torch::nn::Module {
 public:
  explicit Mlp(const ModelSpec& spec);

  // x [..., hidden] -> the same shape.
  torch::Tensor forward(const torch::Tensor& x) const;

 private:
  Activation activation_;
  std::shared_ptr<Linear> gate_;  // null: not gated
  std::shared_ptr<Linear> up_;
  std::shared_ptr<Linear> down_;
};

}  // namespace zeroth::model
