#include "model/custom_function.h"

#include <torch/csrc/autograd/custom_function.h>

#include <utility>

namespace zeroth::model {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr const char* kFunction = "function";

// The graph keeps it as a capsule.
struct FunctionHolder : torch::CustomClassHolder {
  explicit FunctionHolder(std::shared_ptr<CustomFunction> held) : function(std::move(held)) {}
  std::shared_ptr<CustomFunction> function;
};

struct AnyFunction : torch::autograd::Function<AnyFunction> {
  static variable_list forward(AutogradContext* ctx, at::TensorList inputs,
                               const std::shared_ptr<CustomFunction>& function) {
    ctx->saved_data[kFunction] =
        c10::IValue::make_capsule(c10::make_intrusive<FunctionHolder>(function));
    return function->forward(FunctionContext(*ctx), inputs.vec());
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const torch::NoGradGuard no_grad;
    const auto holder =
        c10::static_intrusive_pointer_cast<FunctionHolder>(ctx->saved_data[kFunction].toCapsule());
    variable_list gradients = holder->function->backward(FunctionContext(*ctx), std::move(grads));
    gradients.emplace_back();  // of the function itself
    return gradients;
  }
};

}  // namespace

void FunctionContext::save_for_backward(TensorVector tensors) const {
  context_.save_for_backward(std::move(tensors));
}

void FunctionContext::keep_undefined_grads() const {
  context_.set_materialize_grads(false);
}

TensorVector FunctionContext::saved() const {
  return context_.get_saved_variables();
}

bool FunctionContext::needs_input_grad(size_t input) const {
  return context_.needs_input_grad(input);
}

TensorVector apply_function(const std::shared_ptr<CustomFunction>& function,
                            const TensorVector& inputs) {
  return AnyFunction::apply(at::TensorList(inputs), function);
}

}  // namespace zeroth::model
