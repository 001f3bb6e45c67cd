// Lion ("Symbolic Discovery of Optimization Algorithms", arXiv 2302.06675).
#pragma once

#include "optim/tensor_rule.h"

namespace zeroth::optim {

// Lion is DeepSpeed's formula (csrc/lion): with gradient g, momentum m and update
//   c = beta1 * m + (1 - beta1) * g
//   master = master * (1 - lr * weight_decay) - copysign(lr, c)
//   m = beta2 * m + (1 - beta2) * g
// An element whose c is +0, such as one that never had a gradient, moves by -lr, as on DeepSpeed's
// CPU.
class Lion : public TensorRule {
 public:
  std::span<const std::string_view> state_names() const override;

 private:
  void update(const Chunk& chunk, const UpdateStep& step) const override;
};

}  // namespace zeroth::optim
