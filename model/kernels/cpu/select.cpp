#include "model/kernels/cpu/select.h"

#include "base/cpu.h"

namespace zeroth::model::cpu {

const Kernels& kernels() {
  if (cpu_level() >= CpuLevel::kAvx512) return avx512::kKernels;
  if (cpu_level() >= CpuLevel::kAvx2) return avx2::kKernels;
  return plain::kKernels;
}

bool multiplies(torch::ScalarType dtype) {
  if (dtype == torch::kBFloat16) return cpu_products().bf16 != CpuProduct::kTiles;
  return dtype != torch::kFloat16 || cpu_products().fp16 != CpuProduct::kTiles;
}

bool multiplies_tiles() {
  return cpu_level() >= CpuLevel::kAvx2;
}

}  // namespace zeroth::model::cpu
