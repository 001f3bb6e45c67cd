// TensorRule is an update rule made of LibTorch's operators, on any device.
#pragma once

#include "optim/update_rule.h"

namespace zeroth::optim {

// A TensorRule widens the gradient first and makes the copy in a pass afterwards; between them
// `update` is one fused kernel, or a few operators.
class TensorRule : public UpdateRule {
 public:
  void apply(const Chunk& chunk, const UpdateStep& step) const final;

 private:
  // Updates a checked chunk; the gradient is fp32 and may be overwritten, the copy is ignored.
  virtual void update(const Chunk& chunk, const UpdateStep& step) const = 0;
};

// Returns the formula that `config` names, by LibTorch's operators; Lamb (optim/lamb.h) is no
// TensorRule.
std::unique_ptr<UpdateRule> make_tensor_rule(const configs::OptimizerConfig& config);

}  // namespace zeroth::optim
