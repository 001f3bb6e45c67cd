#include "model/blocks/linear.h"

#include <torch/csrc/autograd/custom_function.h>

#include <utility>

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

// Weights [out, in] as one, where one product with it takes the place of theirs: on a GPU, which
// small products do not fill, where they lie side by side. Undefined elsewhere.
Tensor weight_of_all(const Tensor& x, at::TensorList weights) {
  return x.is_cuda() && weights.size() > 1 ? joined(weights, 0) : Tensor();
}

// What the products of one input have in common.
struct Form {
  WeightLayout layout = WeightLayout::kOutIn;
  bool bias = false;
  Side side = Side::kNone;
  TensorRanksPtr ranks = nullptr;

  bool joins() const { return layout == WeightLayout::kOutIn && !bias && side == Side::kNone; }
};

// Any number of products of one input: `parameters` is weight, weight, ... or weight, bias, weight,
// bias, ...
struct Products : torch::autograd::Function<Products> {
  static variable_list forward(AutogradContext* ctx, const Tensor& x, at::TensorList parameters,
                               const Form& form) {
    ctx->set_materialize_grads(false);
    ctx->saved_data["in_out"] = form.layout == WeightLayout::kInOut;
    ctx->saved_data["bias"] = form.bias;
    ctx->saved_data["joins"] = form.joins();
    ctx->saved_data["side"] = static_cast<int64_t>(form.side);
    if (form.ranks) save_ranks(ctx, form.ranks);
    variable_list saved = {x};
    saved.insert(saved.end(), parameters.begin(), parameters.end());
    ctx->save_for_backward(saved);
    const Tensor input = form.side == Side::kOut ? form.ranks->gather(x, kInputs) : x;
    if (form.joins()) {
      const Tensor weight = weight_of_all(x, parameters);
      if (weight.defined()) return outputs_of_all(x, weight, parameters);
    }
    variable_list outputs;
    const size_t stride = form.bias ? 2 : 1;
    for (size_t i = 0; i < parameters.size(); i += stride) {
      const Tensor bias = form.bias ? parameters[i + 1] : Tensor();
      outputs.push_back(
          form.side == Side::kIn
              ? summed(product(input, parameters[i], Tensor(), form.layout), bias, *form.ranks)
              : product(input, parameters[i], bias, form.layout));
    }
    return outputs;
  }

  static variable_list backward(AutogradContext* ctx, variable_list dys) {
    const torch::NoGradGuard no_grad;
    const variable_list saved = ctx->get_saved_variables();
    const auto side = static_cast<Side>(ctx->saved_data["side"].toInt());
    const size_t stride = ctx->saved_data["bias"].toBool() ? 2 : 1;
    variable_list gradients(saved.size() + 1);  // x, parameters ..., form
    if (ctx->saved_data["joins"].toBool() && backward_of_all(ctx, saved, dys, gradients[0]))
      return gradients;
    // Of a rank's run of tokens where inputs are cut: a bias is added to that.
    for (size_t i = 0; stride == 2 && i < dys.size(); ++i) {
      const size_t at = 2 + 2 * i;
      if (dys[i].defined() && ctx->needs_input_grad(at))
        gradients[at] = deliver_sum(saved[at], rows(dys[i]));
    }
    if (side == Side::kIn && dys[0].defined()) {
      dys[0] = saved_ranks(ctx)->gather(rows(dys[0]), kOutputGradients);
    }
    Arriving again;  // the input, of which this rank has kept its own run
    if (side == Side::kOut && delivers_any(ctx, dys, stride)) {
      again = saved_ranks(ctx)->begin_gather(saved[0], kInputs);
    }
    const Tensor dx = ctx->needs_input_grad(0) ? input_gradient(ctx, saved, dys, stride) : Tensor();
    Arriving own;
    if (side == Side::kOut && dx.defined())
      own = saved_ranks(ctx)->begin_scatter_sum(dx, kInputGradients);
    const Tensor input = side == Side::kOut ? again.wait() : saved[0];
    for (size_t i = 0; i < dys.size(); ++i) {
      const size_t at = 1 + i * stride;
      if (dys[i].defined() && ctx->needs_input_grad(at))
        gradients[at] = weight_gradient(ctx, saved[at], rows(input), rows(dys[i]));
    }
    if (dx.defined()) gradients[0] = side == Side::kOut ? own.wait() : dx.view(saved[0].sizes());
    return gradients;
  }

 private:
  // How messages call what crosses the ranks.
  static constexpr const char* kInputs = "inputs of products";
  static constexpr const char* kOutputs = "outputs of products";
  static constexpr const char* kInputGradients = "gradients of inputs of products";
  static constexpr const char* kOutputGradients = "gradients of outputs of products";

  static variable_list outputs_of_all(const Tensor& x, const Tensor& weight,
                                      at::TensorList weights) {
    std::vector<int64_t> sizes;
    for (const Tensor& part : weights) sizes.push_back(part.size(0));
    return at::unsafe_split_with_sizes(product(x, weight, Tensor(), WeightLayout::kOutIn), sizes,
                                       -1);
  }

  // Returns whether the products were one, and their gradients too.
  static bool backward_of_all(AutogradContext* ctx, const variable_list& saved,
                              const variable_list& dys, Tensor& dx) {
    const auto weights = at::TensorList(saved).slice(1);
    std::vector<Tensor> parts;
    for (size_t i = 0; i < dys.size(); ++i) {
      if (!dys[i].defined() || !ctx->needs_input_grad(1 + i)) return false;
      parts.push_back(rows(dys[i]));
    }
    const Tensor weight = weight_of_all(saved[0], weights);
    if (!weight.defined()) return false;
    Tensor dy = joined(parts, 1);
    if (!dy.defined()) dy = at::cat(parts, 1);
    if (!deliver_product_of_all(weights, dy, rows(saved[0]))) return false;
    if (ctx->needs_input_grad(0)) dx = matrix_product(dy, weight).view(saved[0].sizes());
    return true;
  }

  // Whether any of the weights gets a gradient.
  static bool delivers_any(AutogradContext* ctx, const variable_list& dys, size_t stride) {
    for (size_t i = 0; i < dys.size(); ++i) {
      if (dys[i].defined() && ctx->needs_input_grad(1 + i * stride)) return true;
    }
    return false;
  }

  static Tensor summed(const Tensor& addend, const Tensor& bias, const TensorRanks& ranks) {
    Tensor own = ranks.scatter_sum(addend, kOutputs);
    return bias.defined() ? own.add_(bias) : own;
  }

  static Tensor input_gradient(AutogradContext* ctx, const variable_list& saved,
                               const variable_list& dys, size_t stride) {
    Tensor dx;
    for (size_t i = 0; i < dys.size(); ++i) {
      if (!dys[i].defined()) continue;
      const Tensor& weight = saved[1 + i * stride];
      const Tensor out_in = ctx->saved_data["in_out"].toBool() ? weight.t() : weight;
      if (dx.defined()) {
        add_matrix_product(dx, rows(dys[i]), out_in);
      } else {
        dx = matrix_product(rows(dys[i]), out_in);
      }
    }
    return dx;
  }

  static Tensor weight_gradient(AutogradContext* ctx, const Tensor& weight, const Tensor& x,
                                const Tensor& dy) {
    return ctx->saved_data["in_out"].toBool() ? deliver_product(weight, x, dy)
                                              : deliver_product(weight, dy, x);
  }

  static Tensor deliver_sum(const Tensor& bias, const Tensor& dy) {
    const Tensor open = open_gradient(bias);
    const auto dtype = (open.defined() ? open : bias).scalar_type();
    return deliver_gradient(bias, dy.sum({0}, false, dtype));
  }
};

variable_list products(const Tensor& x, std::initializer_list<const Linear*> layers) {
  const Linear& first = **layers.begin();
  const Form form{first.layout, first.bias.defined(), first.cut.side, first.ranks};
  std::vector<Tensor> parameters;
  for (const Linear* layer : layers) {
    ZEROTH_CHECK(layer->layout == form.layout && layer->bias.defined() == form.bias &&
                     layer->cut.side == form.side,
                 "one layout, one kind of bias and one cut for all products of an input");
    parameters.push_back(layer->weight);
    if (form.bias) parameters.push_back(layer->bias);
  }
  return Products::apply(x, at::TensorList(parameters), form);
}

Tensor meta_parameter(at::IntArrayRef sizes) {
  return torch::empty(sizes, torch::dtype(torch::kFloat32).device(torch::kMeta));
}

}  // namespace

Linear::Linear(const LinearShape& shape)
    : layout(shape.layout), cut(shape.cut), ranks(shape.ranks) {
  const int64_t in = cut.side == Side::kIn ? cut.extent : shape.in;
  const int64_t out = cut.side == Side::kOut ? cut.extent : shape.out;
  const bool out_in = layout == WeightLayout::kOutIn;
  weight = register_parameter("weight", meta_parameter({out_in ? out : in, out_in ? in : out}));
  if (shape.bias) bias = register_parameter("bias", meta_parameter({out}));
}

void Linear::add_splits(const std::string& path, Splits& splits) const {
  if (cut.side == Side::kNone) return;
  const size_t last = path.rfind('.') + 1;
  const std::string whole = cut.product.empty() ? path : path.substr(0, last) + cut.product;
  const size_t dim = (cut.side == Side::kOut) == (layout == WeightLayout::kOutIn) ? 0 : 1;
  Split split{whole + ".weight", weight.sizes().vec(), {0, 0}, cut.copies};
  split.shape[dim] = cut.whole;
  split.begin[dim] = cut.begin;
  splits[path + ".weight"] = split;
  if (bias.defined() && cut.side == Side::kOut)
    splits[path + ".bias"] = {whole + ".bias", {cut.whole}, {cut.begin}, cut.copies};
}

Splits splits_of_products(const torch::nn::Module& block) {
  Splits splits;
  for (const auto& item : block.named_modules("", /*include_self=*/false)) {
    if (const auto* const layer = item.value()->as<Linear>()) layer->add_splits(item.key(), splits);
  }
  return splits;
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
  return Products::apply(x, at::TensorList(parameters), Form())[0];
}

}  // namespace zeroth::model
