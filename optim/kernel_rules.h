// The rules that use our own kernels: CpuRule in CPU memory, DeviceRule on a GPU. They support any
// formula but Lamb; masters and states are stored in the configured dtypes.
#pragma once

#include <span>

#include "configs/config.h"
#include "optim/cpu/cpu_update.h"
#include "optim/update_rule.h"

namespace zeroth::optim {

namespace kernel {
struct DeviceStep;
}

// CpuRule makes one pass over a chunk on the CPU, through optim/cpu/cpu_update.h: it reads the
// gradient, updates master and states, and writes the copy. Blocks until done; does not change the
// gradient.
class CpuRule : public UpdateRule {
 public:
  explicit CpuRule(const configs::OptimizerConfig& config) : UpdateRule(config), update_(config) {}

  void apply(const Chunk& chunk, const UpdateStep& step) const override;

 private:
  CpuUpdate update_;
};

// DeviceRule runs one kernel over a chunk on a GPU, as CpuRule does, with the operations of
// optim/cpu/cpu_update.h in their order and the same bf16 rounding. It is the operator
// zeroth::update_ of torch's dispatcher, whose CUDA kernel is in optim/gpu. Does not change the
// gradient.
class DeviceRule : public UpdateRule {
 public:
  explicit DeviceRule(const configs::OptimizerConfig& config) : UpdateRule(config) {}

  // Returns whether the loaded GPU library has such a kernel.
  static bool runs_on(torch::Device device);

  void apply(const Chunk& chunk, const UpdateStep& step) const override;
  // Applies as many parameter groups at once as fit into one call of the kernel.
  void apply_param_groups(const Chunk& chunk, const UpdateStep& step,
                          std::span<const ParamGroupRange> param_groups) const override;

 private:
  // Calls the operator once.
  void call(const Chunk& chunk, const kernel::DeviceStep& step) const;

  mutable torch::Tensor tables_;  // of coded states: on the device of the first chunk
};

}  // namespace zeroth::optim
