// Update rules made of LibTorch's operators, on whatever device the tensors are.
#pragma once

#include "optim/update_rule.h"

namespace zeroth::optim {

// The gradient is widened first and the copy is a pass afterwards; between them `update` is one
// fused kernel, or a few operators.
class TensorRule : public UpdateRule {
 public:
  void apply(const Chunk& chunk, const UpdateStep& step) const final;

 private:
  // Checked; the gradient is fp32 and may be overwritten, the copy is not looked at.
  virtual void update(const Chunk& chunk, const UpdateStep& step) const = 0;
};

// The formula that `config` names, by LibTorch's operators; Lamb (optim/lamb.h) is no TensorRule.
std::unique_ptr<UpdateRule> make_tensor_rule(const configs::OptimizerConfig& config);

}  // namespace zeroth::optim
