// Every optimizer on a GPU: the operator zeroth::update_ of torch's dispatcher, whose CUDA kernel
// is in optim/gpu.
#pragma once

#include "optim/kernel_rule.h"

namespace zeroth::optim {

// One kernel over a tile: gradient in, master and states updated, copy out, with the operations of
// optim/cpu_update.h in their order, bf16 rounded alike. Leaves the gradient as it is.
class DeviceRule : public KernelRule {
 public:
  explicit DeviceRule(const configs::OptimizerConfig& config) : KernelRule(config) {}

  // Whether the GPU library that is loaded has such a kernel.
  static bool runs_on(torch::Device device);

  void apply(const Chunk& chunk, const UpdateStep& step) const override;
  // As many stretches at once as fit into a call.
  void apply_param_groups(const Chunk& chunk, const UpdateStep& step,
                          std::span<const ParamGroupRange> param_groups) const override;
};

}  // namespace zeroth::optim
