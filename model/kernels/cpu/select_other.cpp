// On processors other than x86 there are the plain kernels.
#include "model/kernels/cpu/select.h"

namespace zeroth::model::cpu {

const CpuKernels& select_kernels() {
  return plain::kKernels;
}

}  // namespace zeroth::model::cpu
