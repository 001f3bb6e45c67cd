// Functions with a backward of their own. They take the place of torch::autograd::Function, a
// template whose header takes more time to compile than the rest of a unit: it is included in
// custom_function.cpp alone.
#pragma once

#include <memory>
#include <vector>

#include "device/tensor.h"

namespace torch::autograd {
struct AutogradContext;
}

namespace zeroth::model {

using TensorVector = std::vector<torch::Tensor>;

// A FunctionContext belongs to one call of a function, from its forward to the end of its backward.
class FunctionContext {
 public:
  explicit FunctionContext(torch::autograd::AutogradContext& context) : context_(context) {}

  // Keeps tensors, which may be undefined, for the backward. Called at most once, by the forward.
  void save_for_backward(TensorVector tensors) const;
  // Gives the backward undefined gradients for outputs without one; without this call they are
  // zeros.
  void keep_undefined_grads() const;

  // Returns the saved tensors. Throws a c10::Error if one was written in place since.
  TensorVector saved() const;
  // Returns whether the backward has to compute the gradient of inputs[input].
  bool needs_input_grad(size_t input) const;

 private:
  torch::autograd::AutogradContext& context_;
};

// A CustomFunction is one call: its members are what is not a tensor with a gradient.
class CustomFunction {
 public:
  virtual ~CustomFunction() = default;

  // Returns the outputs. Called once, without recording.
  virtual TensorVector forward(const FunctionContext& context, const TensorVector& inputs) = 0;
  // Returns a gradient for each input, undefined where none is needed, from those of the outputs.
  // Called without recording.
  virtual TensorVector backward(const FunctionContext& context, TensorVector grads) const = 0;
};

// Returns the outputs of function->forward(inputs), which autograd differentiates by its backward.
TensorVector apply_function(const std::shared_ptr<CustomFunction>& function,
                            const TensorVector& inputs);

}  // namespace zeroth::model
