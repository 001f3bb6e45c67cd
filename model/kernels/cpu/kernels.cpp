// Compiled once per instruction set, which ZEROTH_ISA names (CMakeLists.txt).
#include "model/kernels/cpu/kernels.h"

#include "model/kernels/cpu/attention_backward.h"
#include "model/kernels/cpu/attention_forward.h"
#include "model/kernels/cpu/elementwise.h"

namespace zeroth::model::cpu {
namespace {

template <typename T, typename Tile>
constexpr AttentionKernels<T, Tile> attention_of() {
  return {.scratch = attention_scratch,
          .forward = attention<T, Tile>,
          .backward = attention_backward<T, Tile>};
}

template <typename T>
constexpr KernelsOf<T> kernels_of() {
  return {.rms_norm = rms_norm<T>,
          .rms_norm_backward = rms_norm_backward<T>,
          .rotate = rotate<T>,
          .swiglu = swiglu<T>,
          .swiglu_backward = swiglu_backward<T>,
          .log_sum_exp = log_sum_exp<T>,
          .logit_gradient = logit_gradient<T>,
          .attention = attention_of<T, float>(),
          .widen = widen<T>,
          .widen_transposed = widen_transposed<T>,
          .narrow = narrow<T>};
}

}  // namespace

namespace ZEROTH_ISA {

constexpr Kernels kAll = {.of_float = kernels_of<float>(),
                          .of_bf16 = kernels_of<Bf16>(),
                          .of_fp16 = kernels_of<Fp16>(),
                          .bf16_attention = attention_of<Bf16, Bf16>()};
const Kernels kKernels = kAll;

}  // namespace ZEROTH_ISA

}  // namespace zeroth::model::cpu
