// The implementations of the operators of fused.h on the CPU and by formulas.
#pragma once

#include <torch/types.h>

#include <array>
#include <optional>
#include <tuple>

namespace torch {
class Library;
}

namespace zeroth::model {

// Registers the operators with the dispatcher for the CPU (fused_cpu.cpp): the loops of
// model/kernels/cpu over all threads, or the formulas if the dtype (fp64) or the layout has no
// loop.
void register_on_cpu(torch::Library& library);

// The reference formulas, in passes of ATen: for devices without a kernel of their own, and for
// shapes that a kernel does not support.
namespace formula {

std::tuple<torch::Tensor, torch::Tensor> rms_norm(const torch::Tensor& x,
                                                  const torch::Tensor& weight, double eps);
std::tuple<torch::Tensor, torch::Tensor, torch::Tensor> add_rms_norm(const torch::Tensor& x,
                                                                     const torch::Tensor& addend,
                                                                     const torch::Tensor& weight,
                                                                     double eps);
// Returns dx and dweight, which `output_mask` selects. A gradient that is not selected is an empty
// tensor: the dispatcher supports no undefined results.
std::tuple<torch::Tensor, torch::Tensor> rms_norm_backward(
    const torch::Tensor& dy, const torch::Tensor& x, const torch::Tensor& weight,
    const torch::Tensor& scale, const std::optional<torch::Tensor>& residual,
    std::array<bool, 2> output_mask);
torch::Tensor rotate_pairs(const torch::Tensor& x, const torch::Tensor& cos,
                           const torch::Tensor& sin, double direction);
torch::Tensor swiglu(const torch::Tensor& gate, const torch::Tensor& up);
std::tuple<torch::Tensor, torch::Tensor> swiglu_backward(const torch::Tensor& dy,
                                                         const torch::Tensor& gate,
                                                         const torch::Tensor& up);

void add_rows_(torch::Tensor table, const torch::Tensor& rows, const torch::Tensor& dy);
torch::Tensor log_sum_exp(const torch::Tensor& logits);
void logit_gradient_(torch::Tensor logits, const torch::Tensor& lse, const torch::Tensor& targets,
                     const torch::Tensor& scale);

}  // namespace formula

}  // namespace zeroth::model
