#include "model/blocks/open_gradient.h"

#include "model/kernels/product.h"

namespace zeroth::model {

namespace {

// The version of a fresh gradient: none that a tensor has by itself.
constexpr uint32_t kFresh = uint32_t{1} << 30;

}  // namespace

torch::Tensor make_open_gradient(const torch::Tensor& view, bool fresh) {
  torch::Tensor open = view.variable_data();  // counts its own versions
  if (fresh) open.unsafeGetTensorImpl()->set_version_counter(c10::VariableVersion(kFresh));
  return open;
}

bool is_fresh(const torch::Tensor& open) {
  return open._version() == kFresh;
}

bool was_written(const torch::Tensor& open, bool fresh) {
  return open._version() != (fresh ? kFresh : 0);
}

torch::Tensor open_gradient(const torch::Tensor& parameter) {
  return parameter.grad();
}

torch::Tensor deliver_gradient(const torch::Tensor& parameter, const torch::Tensor& gradient) {
  const torch::Tensor open = open_gradient(parameter);
  if (!open.defined()) return gradient.to(parameter.scalar_type());
  is_fresh(open) ? open.copy_(gradient) : open.add_(gradient);
  return {};
}

torch::Tensor deliver_product(const torch::Tensor& parameter, const torch::Tensor& a,
                              const torch::Tensor& b) {
  const torch::Tensor open = open_gradient(parameter);
  if (open.defined() && (open.scalar_type() == a.scalar_type() || adds_wider(open, a))) {
    is_fresh(open) ? write_matrix_product(open, a.t(), b) : add_matrix_product(open, a.t(), b);
    return {};
  }
  return deliver_gradient(parameter, matrix_product(a.t(), b));
}

bool deliver_product_of_all(at::TensorList parameters, const torch::Tensor& a,
                            const torch::Tensor& b) {
  std::vector<torch::Tensor> opens;
  for (const torch::Tensor& parameter : parameters) {
    opens.push_back(open_gradient(parameter));
    if (!opens.back().defined() || is_fresh(opens.back()) != is_fresh(opens[0])) return false;
  }
  const torch::Tensor all = joined(opens, 0);
  if (!all.defined() || (all.scalar_type() != a.scalar_type() && !adds_wider(all, a))) return false;
  is_fresh(opens[0]) ? write_matrix_product(all, a.t(), b) : add_matrix_product(all, a.t(), b);
  for (const torch::Tensor& open : opens) open.unsafeGetTensorImpl()->bump_version();
  return true;
}

}  // namespace zeroth::model
