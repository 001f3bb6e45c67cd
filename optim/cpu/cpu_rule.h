// CpuRule runs every optimizer in CPU memory, through optim/cpu/cpu_update.h.
#pragma once

#include "optim/cpu/cpu_update.h"
#include "optim/kernel_rule.h"

namespace zeroth::optim {

// CpuRule makes one pass over a chunk on the CPU: it reads the gradient, updates master and states,
// and writes the copy. Blocks until done; does not change the gradient.
class CpuRule : public KernelRule {
 public:
  explicit CpuRule(const configs::OptimizerConfig& config) : KernelRule(config), update_(config) {}

  void apply(const Chunk& chunk, const UpdateStep& step) const override;

 private:
  CpuUpdate update_;
};

}  // namespace zeroth::optim
