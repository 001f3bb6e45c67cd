#include "model/blocks/main_grad.h"

#include <utility>

#include "model/custom_function.h"
#include "model/kernels/matrix_product.h"

namespace zeroth::model {

namespace {

// The version of an unwritten gradient: no tensor reaches it by itself.
constexpr uint32_t kUnwrittenVersion = uint32_t{1} << 30;
// The version of a mark, whose data is a DeferredGrads: writes take neither a new tensor nor an
// unwritten gradient there.
constexpr uint32_t kDeferredVersion = kUnwrittenVersion - 1;

bool is_mark(const torch::Tensor& grad) {
  return grad._version() == kDeferredVersion;
}

}  // namespace

torch::Tensor meta_parameter(at::IntArrayRef sizes) {
  return torch::empty(sizes, torch::dtype(torch::kFloat).device(torch::kMeta));
}

torch::Tensor make_main_grad(const torch::Tensor& view, bool unwritten) {
  torch::Tensor grad_view = view.variable_data();  // has a version counter of its own
  if (unwritten)
    grad_view.unsafeGetTensorImpl()->set_version_counter(c10::VariableVersion(kUnwrittenVersion));
  return grad_view;
}

bool is_unwritten(const torch::Tensor& grad_view) {
  return grad_view._version() == kUnwrittenVersion;
}

bool was_written(const torch::Tensor& grad_view, bool unwritten) {
  return grad_view._version() != (unwritten ? kUnwrittenVersion : 0);
}

torch::Tensor main_grad(const torch::Tensor& parameter) {
  const torch::Tensor grad = parameter.grad();
  return grad.defined() && is_mark(grad) ? torch::Tensor() : grad;
}

torch::Tensor deliver_grad(const torch::Tensor& parameter) {
  struct DeliverGrad final : CustomFunction {
    TensorVector forward(const FunctionContext& context, const TensorVector& inputs) override {
      context.save_for_backward(inputs);
      return {inputs[0].view_as(inputs[0])};
    }
    TensorVector backward(const FunctionContext& context, TensorVector grads) const override {
      return {accumulate_grad(context.saved()[0], grads[0])};
    }
  };
  return apply_function(std::make_shared<DeliverGrad>(), {parameter})[0];
}

torch::Tensor accumulate_grad(const torch::Tensor& parameter, const torch::Tensor& gradient) {
  if (defer_grad(parameter, [=] { accumulate_grad(parameter, gradient); })) return {};
  const torch::Tensor grad_view = main_grad(parameter);
  if (!grad_view.defined()) return gradient.to(parameter.scalar_type());
  is_unwritten(grad_view) ? grad_view.copy_(gradient) : grad_view.add_(gradient);
  return {};
}

torch::Tensor accumulate_wgrad(const torch::Tensor& parameter, const torch::Tensor& a,
                               const torch::Tensor& b) {
  if (accumulate_wgrads(parameter, a, b)) return {};
  return accumulate_grad(parameter, matrix_product(a.t(), b));
}

namespace {

// Delivers deferred gradients as LinearFunction does: in one product if that is possible now.
void deliver_wgrads(const std::vector<torch::Tensor>& parameters, const torch::Tensor& a,
                    const torch::Tensor& b) {
  if (accumulate_wgrads(parameters, a, b)) return;
  int64_t row = 0;
  for (const torch::Tensor& parameter : parameters) {
    accumulate_wgrad(parameter, a.narrow(1, row, parameter.size(0)).contiguous(), b);
    row += parameter.size(0);
  }
}

}  // namespace

bool accumulate_wgrads(at::TensorList parameters, const torch::Tensor& a, const torch::Tensor& b) {
  if (defer_grad(parameters[0], [own = parameters.vec(), a, b] { deliver_wgrads(own, a, b); }))
    return true;
  std::vector<torch::Tensor> grad_views;
  for (const torch::Tensor& parameter : parameters) {
    grad_views.push_back(main_grad(parameter));
    if (!grad_views.back().defined() ||
        is_unwritten(grad_views.back()) != is_unwritten(grad_views[0]))
      return false;
  }
  const torch::Tensor all = concatenated_view(grad_views, 0);
  if (!all.defined() || (all.scalar_type() != a.scalar_type() && !accumulates_in_fp32(all, a)))
    return false;
  write_matrix_product(all, a.t(), b, /*add=*/!is_unwritten(grad_views[0]));
  for (const torch::Tensor& grad_view : grad_views) grad_view.unsafeGetTensorImpl()->bump_version();
  return true;
}

bool defer_grad(const torch::Tensor& parameter, std::function<void()> deliver) {
  const torch::Tensor mark = parameter.grad();
  if (!mark.defined() || !is_mark(mark)) return false;
  static_cast<DeferredGrads*>(mark.data_ptr())->deliveries_.push_back(std::move(deliver));
  return true;
}

void DeferredGrads::begin(const std::vector<torch::Tensor>& parameters, bool accumulates) {
  for (const torch::Tensor& parameter : parameters) {
    if (!parameter.requires_grad()) continue;
    torch::Tensor& grad = torch::Tensor(parameter).mutable_grad();
    grad = torch::Tensor();
    if (!accumulates) continue;
    grad = at::from_blob(this, {1}, torch::kFloat);
    grad.unsafeGetTensorImpl()->set_version_counter(c10::VariableVersion(kDeferredVersion));
  }
}

void DeferredGrads::end(const std::vector<torch::Tensor>& parameters) {
  for (const torch::Tensor& parameter : parameters) {
    if (!parameter.requires_grad()) continue;
    const torch::Tensor grad = std::exchange(torch::Tensor(parameter).mutable_grad(), {});
    if (grad.defined() && !is_mark(grad))
      deliveries_.push_back([=] { accumulate_grad(parameter, grad); });
  }
}

void DeferredGrads::replay() {
  const torch::NoGradGuard no_grad;
  for (const auto& deliver : std::exchange(deliveries_, {})) deliver();
}

}  // namespace zeroth::model
