// Every optimizer on host memory, through optim/cpu_update.h.
#pragma once

#include "optim/cpu_update.h"
#include "optim/kernel_rule.h"

namespace zeroth::optim {

// One pass over a tile on the CPU: gradient in, master and states updated, copy out. Blocks until
// done; leaves the gradient as it is.
class CpuRule : public KernelRule {
 public:
  explicit CpuRule(const configs::OptimizerConfig& config) : KernelRule(config), update_(config) {}

  void apply(const Chunk& chunk, const UpdateStep& step) const override;

 private:
  CpuUpdate update_;
};

}  // namespace zeroth::optim
