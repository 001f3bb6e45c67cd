// The elementwise passes of a transformer layer and their gradients, each one operator of the
// library `zeroth` in torch's dispatcher. A device may register a kernel that makes one pass over
// memory; any other device uses the formulas of fused_formula.cpp. The operators have no autograd:
// the caller's Function provides it.
#pragma once

#include <array>
#include <optional>
#include <tuple>

#include "device/tensor.h"

namespace zeroth::model {

// Returns y in the shape of x, and scale [rows] fp32: one over the root of the mean square plus
// eps. x is [..., n], weight [n] of the same dtype. As in transformers, y is normalized in fp32,
// rounded to x's dtype unless the product is in fp32, then multiplied by weight + offset, a sum in
// fp32.
std::tuple<torch::Tensor, torch::Tensor> rms_norm(const torch::Tensor& x,
                                                  const torch::Tensor& weight, double eps,
                                                  double offset = 0, bool product_in_fp32 = false);
// Returns x + addend in the shape of x, and rms_norm() of that sum.
std::tuple<torch::Tensor, torch::Tensor, torch::Tensor> add_rms_norm(const torch::Tensor& x,
                                                                     const torch::Tensor& addend,
                                                                     const torch::Tensor& weight,
                                                                     double eps, double offset = 0,
                                                                     bool product_in_fp32 = false);
// `saved` has x, weight and scale. Returns dx in the shape of x and dweight [n] fp32, each
// undefined unless the output mask asks for it. A `residual` in the shape of x is added to dx: the
// other gradient of what was normalized.
std::tuple<torch::Tensor, torch::Tensor> rms_norm_backward(
    const torch::Tensor& dy, at::TensorList saved, const std::optional<torch::Tensor>& residual,
    std::array<bool, 2> output_mask = {true, true}, double offset = 0);

// Returns y in the shape of x [batch, seq, heads, d]. The two halves of each head turn as pairs by
// cos and sin [1 or batch, seq, 1, d / 2] of x's dtype. direction -1 turns back.
torch::Tensor apply_rope(const torch::Tensor& x, const torch::Tensor& cos, const torch::Tensor& sin,
                         double direction);

// Returns silu(gate) * up (SwiGLU), or with gelu_tanh gelu(gate, "tanh") * up (GeGLU), for any
// shape.
torch::Tensor gated_activation(const torch::Tensor& gate, const torch::Tensor& up, bool gelu_tanh);
// Returns the gradients of gate and up.
std::tuple<torch::Tensor, torch::Tensor> gated_activation_backward(const torch::Tensor& dy,
                                                                   const torch::Tensor& gate,
                                                                   const torch::Tensor& up,
                                                                   bool gelu_tanh);

// Computes table [n, width] += dy [m, width] at the rows [m] int64 of the table. The sum for a row
// is in fp32 (or wider) and rounded once; on the CPU and in the CUDA kernel its order is always the
// same.
void add_rows_(torch::Tensor table, const torch::Tensor& rows, const torch::Tensor& dy);

// Returns log(sum(exp(row))) [rows] fp32 of logits [rows, vocab]. Here and in logit_gradient_(),
// rows of logits may lie apart (stride(0) >= vocab), as they do if vocab is no multiple of the
// alignment that products and vectors prefer.
torch::Tensor log_sum_exp(const torch::Tensor& logits);
// Turns logits into the gradient of the rows' negative log-likelihoods times `scale` (fp32 scalar):
// (exp(logit - lse) - 1 at the target) * scale, in place. targets [rows] are int64; a target
// outside of [0, vocab) matches no element: another rank has it.
void logit_gradient_(torch::Tensor logits, const torch::Tensor& lse, const torch::Tensor& targets,
                     const torch::Tensor& scale);

}  // namespace zeroth::model
