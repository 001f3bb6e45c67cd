// Compiled once per instruction set, which ZEROTH_ISA names (CMakeLists.txt).
#include "model/cpu/kernels.h"

#include "model/cpu/attention_backward.h"
#include "model/cpu/attention_forward.h"
#include "model/cpu/elementwise.h"

namespace zeroth::model::cpu {
namespace {

template <typename T>
constexpr KernelsOf<T> kernels_of() {
  return {.rms_norm = rms_norm<T>,
          .rms_norm_backward = rms_norm_backward<T>,
          .rotate = rotate<T>,
          .swiglu = swiglu<T>,
          .swiglu_backward = swiglu_backward<T>,
          .log_sum_exp = log_sum_exp<T>,
          .logit_gradient = logit_gradient<T>,
          .attention_scratch = attention_scratch,
          .attention = attention<T>,
          .attention_backward = attention_backward<T>};
}

}  // namespace

namespace ZEROTH_ISA {

constexpr Kernels kAll = {kernels_of<float>(), kernels_of<Bf16>()};
const Kernels kKernels = kAll;

}  // namespace ZEROTH_ISA

}  // namespace zeroth::model::cpu
