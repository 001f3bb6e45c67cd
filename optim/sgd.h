// SGD through LibTorch's fused kernel.
#pragma once

#include "configs/config.h"
#include "optim/tensor_rule.h"

namespace zeroth::optim {

// Sgd equals torch.optim.SGD: weight decay is added to the gradient; with momentum buffer =
// momentum * buffer + (1 - dampening) * gradient, where update 1 sets buffer = gradient; Nesterov
// steps along gradient + momentum * buffer. Without momentum it keeps no state.
class Sgd : public TensorRule {
 public:
  explicit Sgd(const configs::OptimizerConfig& config) : config_(config) {}

  std::span<const std::string_view> state_names() const override;

 private:
  void update(const Chunk& chunk, const UpdateStep& step) const override;

  configs::OptimizerConfig config_;
};

}  // namespace zeroth::optim
