// Lamb steps in Adam's direction, scaled per parameter by the ratio of two norms.
#pragma once

#include "base/machine/cpu.h"
#include "configs/config.h"
#include "optim/cpu/cpu_kernels.h"
#include "optim/update_constants.h"
#include "optim/update_rule.h"

namespace zeroth::optim {

// Lamb is DeepSpeed's FusedLamb (csrc/lamb/fused_lamb_cuda_kernel.cu), by LibTorch's operators:
//   m = b1 * m + (1 - b1) * g,  v = b2 * v + (1 - b2) * g * g
//   u = m / (sqrt(v) + eps) + decay * p, or m / sqrt(v + eps) + decay * p
//   p = p - lr * sqrt(1 - b2^n) / (1 - b1^n) * c * u
// The ratio is c = norm(p) / norm(u) of the full parameter, at most max_coeff, at least min_coeff,
// and 1 if either norm is 0. All is in fp32, constants too, and norms are summed in fp64. Weights
// and moments are fp32.
class Lamb : public UpdateRule, private UpdateRule::NormPass {
 public:
  explicit Lamb(const configs::OptimizerConfig& config) : UpdateRule(config) {}

  const UpdateRule::NormPass* norm_pass() const override { return this; }
  void apply(const Chunk& chunk, const UpdateStep& step) const override;
  void apply_param_groups(const Chunk& chunk, const UpdateStep& step,
                          std::span<const ParamGroupRange> param_groups) const override;

 private:
  using Constants = kernel::Constants;

  void sum(const Chunk& chunk, const UpdateStep& step,
           std::span<const ParamGroupRange> param_groups, const torch::Tensor& sums) const override;
  torch::Tensor ratios(const torch::Tensor& sums) const override;

  // Run the two passes over a slice of one parameter, whose `sums` [2] and `ratio` [] are given.
  // The slice's gradient is set in the first pass, the copy, if there is one, in the second.
  virtual void sum_slice(const Chunk& slice, const Constants& constants,
                         const torch::Tensor& sums) const;
  virtual void step_slice(const Chunk& slice, const Constants& constants,
                          const torch::Tensor& ratio) const;
};

// CpuLamb makes each of Lamb's two passes one loop over CPU memory, on the threads of
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
  void sum_slice(const Chunk& slice, const kernel::Constants& constants,
                 const torch::Tensor& sums) const override;
  void step_slice(const Chunk& slice, const kernel::Constants& constants,
                  const torch::Tensor& ratio) const override;

  const kernel::CpuKernels& kernels_;
};

}  // namespace zeroth::optim
