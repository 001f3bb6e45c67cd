#include "model/kernels/cpu/select.h"

#include "base/machine/cpu.h"

namespace zeroth::model::cpu {

const CpuKernels& select_kernels() {
  if (cpu_isa() >= CpuIsa::kAvx512) return avx512::kKernels;
  if (cpu_isa() >= CpuIsa::kAvx2) return avx2::kKernels;
  return plain::kKernels;
}

}  // namespace zeroth::model::cpu
