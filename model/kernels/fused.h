// The elementwise passes of a transformer layer and their gradients, each one operator of the
// library `zeroth` in torch's dispatcher: a device brings a kernel that makes one pass over memory,
// any other gets the formulas of fused_formula.cpp. No autograd: the caller's Function is that.
#pragma once

#include <torch/types.h>

#include <optional>
#include <utility>

namespace zeroth::model {

// x [..., n], weight [n] of one dtype -> y as x, and scale [rows] fp32: one over the root of the
// mean square plus eps. As in transformers: normalised in fp32, rounded to x's dtype, then times
// the weight.
std::pair<torch::Tensor, torch::Tensor> rms_norm(const torch::Tensor& x,
                                                 const torch::Tensor& weight, double eps);

// The norm of x + addend, which is `sum` as x.
struct AddRmsNormOutput {
  torch::Tensor sum;
  torch::Tensor y;
  torch::Tensor scale;
};
AddRmsNormOutput add_rms_norm(const torch::Tensor& x, const torch::Tensor& addend,
                              const torch::Tensor& weight, double eps);

// -> dx as x (undefined unless dx_wanted) and dweight [n] fp32 (undefined unless dweight_wanted).
// A `residual` as x is added to dx: the other gradient of what was normalized.
struct RmsNormGradients {
  torch::Tensor dx;
  torch::Tensor dweight;
};
struct RmsNormOutputMask {
  bool dx = true;
  bool dweight = true;
};
RmsNormGradients rms_norm_backward(const torch::Tensor& dy, const torch::Tensor& x,
                                   const torch::Tensor& weight, const torch::Tensor& scale,
                                   RmsNormOutputMask output_mask,
                                   const std::optional<torch::Tensor>& residual = std::nullopt);

// x [batch, seq, heads, d], each head as two halves that turn as pairs by cos and sin
// [1 or batch, seq, 1, d / 2] of x's dtype -> y as x. direction -1 turns back.
torch::Tensor rotate_pairs(const torch::Tensor& x, const torch::Tensor& cos,
                           const torch::Tensor& sin, double direction);

// silu(gate) * up, any shape.
torch::Tensor swiglu(const torch::Tensor& gate, const torch::Tensor& up);
// -> gradients of gate and up.
std::pair<torch::Tensor, torch::Tensor> swiglu_backward(const torch::Tensor& dy,
                                                        const torch::Tensor& gate,
                                                        const torch::Tensor& up);

// table [n, width] += dy [m, width] by rows [m] int64 of the table. What comes to a row is summed
// in fp32 (or wider) and rounded once; on the CPU and by the CUDA kernel in the same order every
// time.
void add_rows_(torch::Tensor table, const torch::Tensor& rows, const torch::Tensor& dy);

// Of both that follow: rows of logits may lie apart (stride(0) >= vocab), as they do where vocab is
// no multiple of what products and vectors like.
// Logits [rows, vocab] -> log(sum(exp(row))) [rows] fp32.
torch::Tensor log_sum_exp(const torch::Tensor& logits);
// Turns logits into the gradient of the rows' negative log-likelihoods times `scale` (fp32 scalar):
// (exp(logit - lse) - 1 at the target) * scale, in place. targets [rows] int64; one outside of
// [0, vocab) is no element's: other ranks have it.
void logit_gradient_(torch::Tensor logits, const torch::Tensor& lse, const torch::Tensor& targets,
                     const torch::Tensor& scale);

}  // namespace zeroth::model
