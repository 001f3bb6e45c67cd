// Gradients of parameters go straight into the view that the engine has opened for the backward, if
// there is one.
#pragma once

#include <torch/types.h>

namespace zeroth::model {

// An open gradient in `view`. A fresh one holds no gradient yet: its content is unspecified, and
// the first to deliver writes it. The mark is a version, which every write in place raises.
torch::Tensor make_main_grad(const torch::Tensor& view, bool unwritten);
bool is_unwritten(const torch::Tensor& grad_view);
// Whether anything was delivered to an open gradient that was made `fresh` or not.
bool was_written(const torch::Tensor& grad_view, bool unwritten);

// The open gradient of `parameter`, or undefined. Its dtype may be wider than the parameter's.
torch::Tensor main_grad(const torch::Tensor& parameter);

// Adds `gradient` to the open view (writes it to a fresh one) and returns undefined, which tells
// autograd that nothing is left to accumulate; returns `gradient` in the parameter's dtype where no
// view is open.
torch::Tensor accumulate_grad(const torch::Tensor& parameter, const torch::Tensor& gradient);

// The same for the gradient a^T b of a 2-D parameter, without a temporary where the dtypes agree.
torch::Tensor accumulate_wgrad(const torch::Tensor& parameter, const torch::Tensor& a,
                               const torch::Tensor& b);

// The same for parameters whose gradients a^T b holds one above the other, in one product where
// their open views lie so. Returns whether it was; if not, nothing is delivered.
bool accumulate_wgrads(at::TensorList parameters, const torch::Tensor& a, const torch::Tensor& b);

}  // namespace zeroth::model
