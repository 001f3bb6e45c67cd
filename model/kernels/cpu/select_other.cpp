// On processors other than x86, products are LibTorch's.
#include "model/kernels/cpu/select.h"

namespace zeroth::model::cpu {

const CpuKernels& kernels() {
  return plain::kKernels;
}

bool has_fast_products(torch::ScalarType) {
  return true;
}

bool has_fast_tile_products() {
  return false;
}

}  // namespace zeroth::model::cpu
