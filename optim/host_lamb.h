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
class HostLamb : public Lamb {
 public:
  // `level` says which loops run, and is at most the processor's.
  explicit HostLamb(const configs::OptimizerConfig& config, CpuLevel level = cpu_level());

 private:
  void sum_part(const Part& part, const kernel::Constants& constants,
                const torch::Tensor& sums) const override;
  void step_part(const Part& part, const kernel::Constants& constants,
                 const torch::Tensor& ratio) const override;

  CpuLevel level_;
};

}  // namespace zeroth::optim
