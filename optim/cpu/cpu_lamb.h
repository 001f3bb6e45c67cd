// Lamb in CPU memory.
#pragma once

#include "base/machine/cpu.h"
#include "optim/lamb.h"

namespace zeroth::optim {

// CpuLamb makes each of Lamb's two passes one loop over memory, on the threads of
// base/machine/parallel.h, and blocks until it is done. With fma(a, b, c), which rounds a * b + c
// once:
//   m = fma(1 - b1, g, m * b1),  v = fma((1 - b2) * g, g, v * b2)
//   u = fma(p, decay, m / (sqrt(v) + eps)),  p = fma(-(rate * c), u, p)
// Bits do not depend on threads or the level. The gradient is not changed.
class CpuLamb : public Lamb {
 public:
  // `level` selects the loops that run; it must not exceed the processor's.
  explicit CpuLamb(const configs::OptimizerConfig& config, CpuIsa level = cpu_isa());

 private:
  void sum_slice(const LambSlice& slice, const kernel::Constants& constants,
                 const torch::Tensor& sums) const override;
  void step_slice(const LambSlice& slice, const kernel::Constants& constants,
                  const torch::Tensor& ratio) const override;

  CpuIsa level_;
};

}  // namespace zeroth::optim
