// Lamb on host memory.
#pragma once

#include "base/cpu.h"
#include "optim/lamb.h"

namespace zeroth::optim {

// Each pass is one over memory, on the threads of base/parallel.h, and blocks until it is done:
// fma(a, b, c) rounds a * b + c once, and
//   m = fma(1 - b1, g, m * b1),  v = fma((1 - b2) * g, g, v * b2)
//   u = fma(p, decay, m / (sqrt(v) + eps)),  p = fma(-(rate * c), u, p)
// Bits do not depend on threads or the level. The gradient is left as it is.
class CpuLamb : public Lamb {
 public:
  // `level` says which loops run, and is at most the processor's.
  explicit CpuLamb(const configs::OptimizerConfig& config, CpuIsa level = cpu_isa());

 private:
  void sum_slice(const LambSlice& slice, const kernel::Constants& constants,
                 const torch::Tensor& sums) const override;
  void step_slice(const LambSlice& slice, const kernel::Constants& constants,
                  const torch::Tensor& ratio) const override;

  CpuIsa level_;
};

}  // namespace zeroth::optim
