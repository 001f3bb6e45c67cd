// The implementations of the operators of fused.h on the CPU and by formulas.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>

#include "model/kernels/fused.h"

namespace torch {
class Library;
}

namespace zeroth::model {

// RowLayout describes a tensor as rows of `width` elements, `stride` elements from one to the next.
struct RowLayout {
  int64_t rows, width, stride;
};

// Returns the last dimension as rows at one distance from each other, all elements as one row if
// there are no gaps; nullopt if the layout differs, or the tensor is empty.
std::optional<RowLayout> row_layout(const torch::Tensor& x);

// Returns two tensors like gate and up. If these are parts of one tensor, the results are too: the
// gradient of one fused product has that form.
std::pair<torch::Tensor, torch::Tensor> empty_like_pair(const torch::Tensor& gate,
                                                        const torch::Tensor& up);

// Registers the operators with the dispatcher for the CPU (fused_cpu.cpp): the loops of
// model/kernels/cpu over all threads, or the formulas if the dtype (fp64) or the layout has no
// loop.
namespace cpu {
void register_operators(torch::Library& library);
}

// The reference formulas, in passes of ATen: for devices without a kernel of their own, and for
// shapes that a kernel does not support. Each has the signature of the operator's function.
namespace formula {

decltype(model::rms_norm) rms_norm;
decltype(model::add_rms_norm) add_rms_norm;
// A gradient that is not selected is an empty tensor: the dispatcher supports no undefined results.
decltype(model::rms_norm_backward) rms_norm_backward;
decltype(model::apply_rope) apply_rope;
decltype(model::gated_activation) gated_activation;
decltype(model::gated_activation_backward) gated_activation_backward;
decltype(model::add_rows_) add_rows_;
decltype(model::log_sum_exp) log_sum_exp;
decltype(model::logit_gradient_) logit_gradient_;

}  // namespace formula

}  // namespace zeroth::model
