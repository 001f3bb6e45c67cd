#include "model/open_gradient.h"

#include "model/product.h"

namespace zeroth::model {

torch::Tensor open_gradient(const torch::Tensor& parameter) {
  return parameter.grad();
}

torch::Tensor deliver_gradient(const torch::Tensor& parameter, const torch::Tensor& gradient) {
  const torch::Tensor open = open_gradient(parameter);
  if (!open.defined()) return gradient.to(parameter.scalar_type());
  open.add_(gradient);
  return {};
}

torch::Tensor deliver_product(const torch::Tensor& parameter, const torch::Tensor& a,
                              const torch::Tensor& b) {
  const torch::Tensor open = open_gradient(parameter);
  if (open.defined() && open.scalar_type() == a.scalar_type()) {
    add_matrix_product(open, a.t(), b);
    return {};
  }
  return deliver_gradient(parameter, matrix_product(a.t(), b));
}

}  // namespace zeroth::model
