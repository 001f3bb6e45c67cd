#include "model/blocks/linear.h"

#include <torch/csrc/autograd/custom_function.h>

#include "base/error.h"
#include "model/blocks/open_gradient.h"
#include "model/kernels/product.h"

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
  const Tensor y =
      bias.defined() ? matrix_product_plus(bias, rows(x), in_out) : matrix_product(rows(x), in_out);
  std::vector<int64_t> sizes = x.sizes().vec();
  sizes.back() = y.size(1);
  return at::_unsafe_view(y, sizes);
}

// What the products of one input have in common.
struct Form {
  WeightLayout layout;
  bool bias;
};

// Any number of products of one input: `parameters` is weight, weight, ... or weight, bias, weight,
// bias, ...
struct Products : torch::autograd::Function<Products> {
  static variable_list forward(AutogradContext* ctx, const Tensor& x, at::TensorList parameters,
                               const Form& form) {
    ctx->set_materialize_grads(false);
    ctx->saved_data["in_out"] = form.layout == WeightLayout::kInOut;
    ctx->saved_data["bias"] = form.bias;
    variable_list saved = {x};
    saved.insert(saved.end(), parameters.begin(), parameters.end());
    ctx->save_for_backward(saved);
    variable_list outputs;
    const size_t stride = form.bias ? 2 : 1;
    for (size_t i = 0; i < parameters.size(); i += stride) {
      outputs.push_back(
          product(x, parameters[i], form.bias ? parameters[i + 1] : Tensor(), form.layout));
    }
    return outputs;
  }

  static variable_list backward(AutogradContext* ctx, variable_list dys) {
    const torch::NoGradGuard no_grad;
    const variable_list saved = ctx->get_saved_variables();
    const Tensor& x = saved[0];
    const bool in_out = ctx->saved_data["in_out"].toBool();
    const bool has_bias = ctx->saved_data["bias"].toBool();
    variable_list gradients(saved.size() + 1);  // x, parameters ..., form
    Tensor dx;
    for (size_t i = 0; i < dys.size(); ++i) {
      if (!dys[i].defined()) continue;
      const Tensor dy = rows(dys[i]);
      const size_t at = 1 + i * (has_bias ? 2 : 1);
      const Tensor& weight = saved[at];
      if (ctx->needs_input_grad(at)) {
        gradients[at] =
            in_out ? deliver_product(weight, rows(x), dy) : deliver_product(weight, dy, rows(x));
      }
      if (has_bias && ctx->needs_input_grad(at + 1)) {
        gradients[at + 1] = deliver_sum(saved[at + 1], dy);
      }
      if (!ctx->needs_input_grad(0)) continue;
      const Tensor out_in = in_out ? weight.t() : weight;
      if (dx.defined()) {
        add_matrix_product(dx, dy, out_in);
      } else {
        dx = matrix_product(dy, out_in);
      }
    }
    if (dx.defined()) gradients[0] = dx.view(x.sizes());
    return gradients;
  }

 private:
  static Tensor deliver_sum(const Tensor& bias, const Tensor& dy) {
    const Tensor open = open_gradient(bias);
    const auto dtype = (open.defined() ? open : bias).scalar_type();
    return deliver_gradient(bias, dy.sum({0}, false, dtype));
  }
};

variable_list products(const Tensor& x, std::initializer_list<const Linear*> layers) {
  const Form form{(*layers.begin())->layout, (*layers.begin())->bias.defined()};
  std::vector<Tensor> parameters;
  for (const Linear* layer : layers) {
    ZEROTH_CHECK(layer->layout == form.layout && layer->bias.defined() == form.bias,
                 "one layout and one kind of bias for all products of an input");
    parameters.push_back(layer->weight);
    if (form.bias) parameters.push_back(layer->bias);
  }
  return Products::apply(x, at::TensorList(parameters), form);
}

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
  return products(x, {&layer})[0];
}

std::vector<Tensor> linear(const Tensor& x, const Linear& a, const Linear& b) {
  return products(x, {&a, &b});
}

std::vector<Tensor> linear(const Tensor& x, const Linear& a, const Linear& b, const Linear& c) {
  return products(x, {&a, &b, &c});
}

Tensor project(const Tensor& x, const Tensor& weight) {
  const std::vector<Tensor> parameters = {weight};
  return Products::apply(x, at::TensorList(parameters), Form{WeightLayout::kOutIn, false})[0];
}

}  // namespace zeroth::model
