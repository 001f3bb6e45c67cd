// Every optimizer on host memory, through optim/host_update.h.
#pragma once

#include "optim/host_update.h"
#include "optim/kernel_rule.h"

namespace zeroth::optim {

// One pass over a tile on the CPU: gradient in, master and states updated, copy out. Blocks until
// done; leaves the gradient as it is.
class HostRule : public KernelRule {
 public:
  explicit HostRule(const configs::OptimizerConfig& config) : KernelRule(config), update_(config) {}

  void apply(const Tile& tile, const UpdateStep& step) const override;

 private:
  HostUpdate update_;
};

}  // namespace zeroth::optim
