// Adam and AdamW through LibTorch's fused kernels.
#pragma once

#include "configs/config.h"
#include "optim/tensor_rule.h"

namespace zeroth::optim {

// Adam equals torch.optim.Adam / AdamW with fused=True: bias-corrected moments, eps outside the
// square root, weight decay decoupled (kAdamW: master *= 1 - lr * decay) or added to the gradient
// (kAdam).
class Adam : public TensorRule {
 public:
  explicit Adam(const configs::OptimizerConfig& config) : config_(config) {}

  std::span<const std::string_view> state_names() const override;

 private:
  void update(const Chunk& chunk, const UpdateStep& step) const override;

  configs::OptimizerConfig config_;
};

}  // namespace zeroth::optim
