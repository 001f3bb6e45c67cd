#include "model/blocks/main_grad.h"

#include "model/kernels/matrix_product.h"

namespace zeroth::model {

namespace {

// The version of an unwritten gradient: no tensor reaches it by itself.
constexpr uint32_t kUnwrittenVersion = uint32_t{1} << 30;

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
  return parameter.grad();
}

torch::Tensor accumulate_grad(const torch::Tensor& parameter, const torch::Tensor& gradient) {
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

bool accumulate_wgrads(at::TensorList parameters, const torch::Tensor& a, const torch::Tensor& b) {
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

}  // namespace zeroth::model
