// Parameters and their gradients, which go straight into the view that the engine has opened for
// the backward, if there is one.
#pragma once

#include <functional>
#include <vector>

#include "device/tensor.h"

namespace zeroth::model {

// Returns a new parameter in the form in which blocks register it: fp32 on the meta device.
torch::Tensor meta_parameter(at::IntArrayRef sizes);

// Returns an open gradient in `view`. An unwritten one holds no gradient yet: its content is
// unspecified, and the first delivery overwrites it. The mark is a version of the tensor, which
// every write in place raises.
torch::Tensor make_main_grad(const torch::Tensor& view, bool unwritten);
bool is_unwritten(const torch::Tensor& grad_view);
// Returns whether anything was delivered to an open gradient that was made with this `unwritten`.
bool was_written(const torch::Tensor& grad_view, bool unwritten);

// Returns the open gradient of `parameter`, or undefined. Its dtype may be wider than the
// parameter's.
torch::Tensor main_grad(const torch::Tensor& parameter);

// Returns `parameter`, for use in formulas of autograd: its gradient goes where accumulate_grad()
// puts it.
torch::Tensor deliver_grad(const torch::Tensor& parameter);

// Adds `gradient` to the open view (or writes it to an unwritten one) and returns undefined, so
// that autograd has nothing left to accumulate; returns `gradient` in the parameter's dtype if no
// view is open.
torch::Tensor accumulate_grad(const torch::Tensor& parameter, const torch::Tensor& gradient);

// Accumulates the gradient a^T b of a 2-D parameter like accumulate_grad(), without a temporary if
// the dtypes agree.
torch::Tensor accumulate_wgrad(const torch::Tensor& parameter, const torch::Tensor& a,
                               const torch::Tensor& b);

// Accumulates the gradients of parameters that a^T b holds one above the other, in one product, if
// their open views are adjacent in the same order. Returns whether it did; if not, nothing is
// delivered.
bool accumulate_wgrads(at::TensorList parameters, const torch::Tensor& a, const torch::Tensor& b);

// Returns true if the gradient of `parameter` is deferred: `deliver` is kept, and called once a
// view is open. The functions above defer by themselves.
bool defer_grad(const torch::Tensor& parameter, std::function<void()> deliver);

// DeferredGrads keeps what the backward of a block delivers to parameters, so that gradients of
// weights are computed some time after those of its input: zero-bubble schedules (arXiv
// 2401.10241). It must not move between begin() and end().
class DeferredGrads {
 public:
  // From now on until end(), keeps what is delivered to these parameters. Without `accumulates`
  // (Block::accumulates_grads) autograd computes their gradients at once, and end() takes them.
  void begin(const std::vector<torch::Tensor>& parameters, bool accumulates);
  void end(const std::vector<torch::Tensor>& parameters);
  // Delivers everything, in the order of the backward, to the open views, and keeps nothing.
  void replay();

 private:
  friend bool defer_grad(const torch::Tensor& parameter, std::function<void()> deliver);

  std::vector<std::function<void()>> deliveries_;
};

}  // namespace zeroth::model
