#include "model/kernels/cpu/select.h"

#include "base/machine/cpu.h"

namespace zeroth::model::cpu {

const CpuKernels& kernels() {
  if (cpu_isa() >= CpuIsa::kAvx512) return avx512::kKernels;
  if (cpu_isa() >= CpuIsa::kAvx2) return avx2::kKernels;
  return plain::kKernels;
}

bool has_fast_products(torch::ScalarType dtype) {
  if (dtype == torch::kBFloat16) return matmul_backends().bf16 != MatmulBackend::kTiles;
  return dtype != torch::kFloat16 || matmul_backends().fp16 != MatmulBackend::kTiles;
}

bool has_fast_tile_products() {
  return cpu_isa() >= CpuIsa::kAvx2;
}

}  // namespace zeroth::model::cpu
