// On processors without kernels of ours.
#include "model/cpu/select.h"

namespace zeroth::model::cpu {

const Kernels* kernels() {
  return nullptr;
}

bool multiplies_tiles(bool) {
  return false;
}

}  // namespace zeroth::model::cpu
