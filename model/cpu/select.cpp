#include "model/cpu/select.h"

#include "base/cpu.h"

namespace zeroth::model::cpu {

const Kernels* kernels() {
  if (cpu_has_avx512()) return &avx512::kKernels;
  if (cpu_has_avx2()) return &avx2::kKernels;
  return nullptr;
}

bool multiplies_tiles(bool bf16) {
  return cpu_has_avx512() && (!bf16 || cpu_has_avx512_bf16());
}

}  // namespace zeroth::model::cpu
