// Adagrad through LibTorch's fused kernel.
#pragma once

#include "configs/config.h"
#include "optim/tensor_rule.h"

namespace zeroth::optim {

// Adagrad equals torch.optim.Adagrad: weight decay is added to the gradient, the rate of update n
// (from 1) is lr / (1 + (n - 1) * lr_decay), eps is added to the root of the sum of squares.
class Adagrad : public TensorRule {
 public:
  explicit Adagrad(const configs::OptimizerConfig& config) : config_(config) {}

  std::span<const std::string_view> state_names() const override;
  double initial_state() const override { return config_.initial_accumulator_value; }

 private:
  void update(const Chunk& chunk, const UpdateStep& step) const override;

  configs::OptimizerConfig config_;
};

}  // namespace zeroth::optim
