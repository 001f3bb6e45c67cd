#include "model/linear.h"

#include <torch/csrc/autograd/custom_function.h>

#include "base/error.h"
#include "model/open_gradient.h"

namespace zeroth::model {
namespace {

using torch::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

Tensor rows(const Tensor& x) {
  return x.reshape({-1, x.size(-1)});
}

Tensor product(const Tensor& x, const Tensor& weight, const Tensor& bias, WeightLayout layout) {
  const Tensor in_out = layout == WeightLayout::kOutIn ? weight.t() : weight;
  const Tensor y = bias.defined() ? at::addmm(bias, rows(x), in_out) : at::mm(rows(x), in_out);
  std::vector<int64_t> sizes = x.sizes().vec();
  sizes.back() = y.size(1);
  return at::_unsafe_view(y, sizes);
}

// Any number of products of one input: parameters come as weight, bias, weight, bias, ...
struct Products : torch::autograd::Function<Products> {
  template <typename... Parameters>
  static variable_list forward(AutogradContext* ctx, const Tensor& x, WeightLayout layout,
                               const Parameters&... parameters) {
    const variable_list list = {parameters...};
    ctx->set_materialize_grads(false);
    ctx->saved_data["in_out"] = layout == WeightLayout::kInOut;
    variable_list saved = {x};
    variable_list outputs;
    for (size_t i = 0; i < list.size(); i += 2) {
      outputs.push_back(product(x, list[i], list[i + 1], layout));
    }
    saved.insert(saved.end(), list.begin(), list.end());
    ctx->save_for_backward(saved);
    return outputs;
  }

  static variable_list backward(AutogradContext* ctx, variable_list dys) {
    const torch::NoGradGuard no_grad;
    const variable_list saved = ctx->get_saved_variables();
    const Tensor& x = saved[0];
    const bool in_out = ctx->saved_data["in_out"].toBool();
    variable_list gradients(saved.size() + 1);  // x, layout, weight, bias, ...
    Tensor dx;
    for (size_t i = 0; i < dys.size(); ++i) {
      if (!dys[i].defined()) continue;
      const Tensor dy = rows(dys[i]);
      const Tensor& weight = saved[2 * i + 1];
      const Tensor& bias = saved[2 * i + 2];
      if (ctx->needs_input_grad(2 * i + 1)) {
        gradients[2 * i + 2] =
            in_out ? deliver_product(weight, rows(x), dy) : deliver_product(weight, dy, rows(x));
      }
      if (bias.defined() && ctx->needs_input_grad(2 * i + 2)) {
        const Tensor open = open_gradient(bias);
        const auto dtype = (open.defined() ? open : bias).scalar_type();
        gradients[2 * i + 3] = deliver_gradient(bias, dy.sum({0}, false, dtype));
      }
      if (!ctx->needs_input_grad(0)) continue;
      const Tensor out_in = in_out ? weight.t() : weight;
      dx = dx.defined() ? dx.addmm_(dy, out_in) : at::mm(dy, out_in);
    }
    if (dx.defined()) gradients[0] = dx.view(x.sizes());
    return gradients;
  }
};

Tensor meta_parameter(at::IntArrayRef sizes) {
  return torch::empty(sizes, torch::dtype(torch::kFloat32).device(torch::kMeta));
}

}  // namespace

Linear::Linear(const LinearShape& shape) : layout(shape.layout) {
  const bool out_in = layout == WeightLayout::kOutIn;
  weight = register_parameter(
      "weight", meta_parameter({out_in ? shape.out : shape.in, out_in ? shape.in : shape.out}));
  if (shape.bias) bias = register_parameter("bias", meta_parameter({shape.out}));
}

Tensor linear(const Tensor& x, const Linear& layer) {
  return Products::apply(x, layer.layout, layer.weight, layer.bias)[0];
}

std::vector<Tensor> linear(const Tensor& x, const Linear& a, const Linear& b) {
  ZEROTH_CHECK(a.layout == b.layout, "one layout for all products of an input");
  return Products::apply(x, a.layout, a.weight, a.bias, b.weight, b.bias);
}

std::vector<Tensor> linear(const Tensor& x, const Linear& a, const Linear& b, const Linear& c) {
  ZEROTH_CHECK(a.layout == b.layout && b.layout == c.layout,
               "one layout for all products of an input");
  return Products::apply(x, a.layout, a.weight, a.bias, b.weight, b.bias, c.weight, c.bias);
}

Tensor project(const Tensor& x, const Tensor& weight) {
  return Products::apply(x, WeightLayout::kOutIn, weight, Tensor())[0];
}

}  // namespace zeroth::model
