// DeviceRule runs every optimizer on a GPU: the operator zeroth::update_ of torch's dispatcher,
// whose CUDA kernel is in optim/gpu.
#pragma once

#include "optim/kernel_rule.h"

namespace zeroth::optim {

// DeviceRule runs one kernel over a chunk: it reads the gradient, updates master and states, and
// writes the copy, with the operations of optim/cpu/cpu_update.h in their order and the same bf16
// rounding. Does not change the gradient.
class DeviceRule : public KernelRule {
 public:
  explicit DeviceRule(const configs::OptimizerConfig& config) : KernelRule(config) {}

  // Returns whether the loaded GPU library has such a kernel.
  static bool runs_on(torch::Device device);

  void apply(const Chunk& chunk, const UpdateStep& step) const override;
  // Applies as many parameter groups at once as fit into one call of the kernel.
  void apply_param_groups(const Chunk& chunk, const UpdateStep& step,
                          std::span<const ParamGroupRange> param_groups) const override;
};

}  // namespace zeroth::optim
