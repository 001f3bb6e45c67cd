// This file is compiled once per instruction set, which ZEROTH_ISA names (CMakeLists.txt).
#include "model/kernels/cpu/kernels.h"

#include "model/kernels/cpu/attention_backward.h"
#include "model/kernels/cpu/attention_forward.h"
#include "model/kernels/cpu/elementwise.h"
#include "model/kernels/cpu/nf4.h"

namespace zeroth::model::cpu {
namespace {

template <typename T, typename Tile>
constexpr AttentionKernels<T, Tile> make_attention_kernels() {
  return {.scratch = attention_scratch,
          .forward = attention<T, Tile>,
          .backward = attention_backward<T, Tile>};
}

template <typename T>
constexpr DtypeKernels<T> make_kernels() {
  return {.rms_norm = rms_norm<T>,
          .rms_norm_backward = rms_norm_backward<T>,
          .rotate = rotate<T>,
          .gated_activation = {gated_activation<silu, T>, gated_activation<gelu_tanh, T>},
          .gated_activation_backward = {gated_activation_backward<silu, T>,
                                        gated_activation_backward<gelu_tanh, T>},
          .log_sum_exp = log_sum_exp<T>,
          .logit_gradient = logit_gradient<T>,
          .attention = make_attention_kernels<T, float>(),
          .widen = convert<T, float>,
          .widen_transposed = widen_transposed<T>,
          .narrow = convert<float, T>,
          .dequantize_nf4 = dequantize_nf4<T>};
}

}  // namespace

namespace ZEROTH_ISA {

const CpuKernels kKernels = {.fp32 = make_kernels<float>(),
                             .bf16 = make_kernels<Bf16>(),
                             .fp16 = make_kernels<Fp16>(),
                             .bf16_attention = make_attention_kernels<Bf16, Bf16>(),
                             .quantize_nf4 = quantize_nf4};

}  // namespace ZEROTH_ISA

}  // namespace zeroth::model::cpu
