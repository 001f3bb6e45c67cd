// On other processors than x86 products are LibTorch's.
#include "model/kernels/cpu/select.h"

namespace zeroth::model::cpu {

const Kernels& kernels() {
  return plain::kKernels;
}

bool multiplies(torch::ScalarType) {
  return true;
}

bool multiplies_tiles() {
  return false;
}

}  // namespace zeroth::model::cpu
