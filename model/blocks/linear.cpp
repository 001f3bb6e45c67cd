#include "model/blocks/linear.h"

#include <torch/csrc/autograd/custom_function.h>

#include <utility>

#include "base/error.h"
#include "model/blocks/main_grad.h"
#include "model/kernels/matrix_product.h"

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
  const Tensor y = bias.defined() ? matrix_product_with_bias(bias, rows(x), in_out)
                                  : matrix_product(rows(x), in_out);
  std::vector<int64_t> sizes = x.sizes().vec();
  sizes.back() = y.size(1);
  return at::_unsafe_view(y, sizes);
}

// Returns weights [out, in] as one, if a single product can replace theirs: on a GPU, which small
// products do not fill, if they are adjacent in memory. Returns undefined otherwise.
Tensor fused_weight(const Tensor& x, at::TensorList weights) {
  return x.is_cuda() && weights.size() > 1 ? concatenated_view(weights, 0) : Tensor();
}

// LinearForm holds what the products of one input have in common.
struct LinearForm {
  WeightLayout layout = WeightLayout::kOutIn;
  bool bias = false;
  ParallelStyle style = ParallelStyle::kNone;
  TensorParallelPtr tp = nullptr;

  bool can_fuse() const {
    return layout == WeightLayout::kOutIn && !bias && style == ParallelStyle::kNone;
  }
};

// LinearFunction computes any number of products of one input: `parameters` is weight, weight, ...
// or weight, bias, weight, bias, ...
struct LinearFunction : torch::autograd::Function<LinearFunction> {
  static variable_list forward(AutogradContext* ctx, const Tensor& x, at::TensorList parameters,
                               const LinearForm& form) {
    ctx->set_materialize_grads(false);
    ctx->saved_data["in_out"] = form.layout == WeightLayout::kInOut;
    ctx->saved_data["bias"] = form.bias;
    ctx->saved_data["joins"] = form.can_fuse();
    ctx->saved_data["side"] = static_cast<int64_t>(form.style);
    if (form.tp) save_tensor_parallel(ctx, form.tp);
    variable_list saved = {x};
    saved.insert(saved.end(), parameters.begin(), parameters.end());
    ctx->save_for_backward(saved);
    const Tensor input =
        form.style == ParallelStyle::kColwise ? form.tp->all_gather(x, kInputs) : x;
    if (form.can_fuse()) {
      const Tensor weight = fused_weight(x, parameters);
      if (weight.defined()) return fused_outputs(x, weight, parameters);
    }
    variable_list outputs;
    const size_t stride = form.bias ? 2 : 1;
    for (size_t i = 0; i < parameters.size(); i += stride) {
      const Tensor bias = form.bias ? parameters[i + 1] : Tensor();
      outputs.push_back(
          form.style == ParallelStyle::kRowwise
              ? reduce_scatter_output(product(input, parameters[i], Tensor(), form.layout), bias,
                                      *form.tp)
              : product(input, parameters[i], bias, form.layout));
    }
    return outputs;
  }

  static variable_list backward(AutogradContext* ctx, variable_list dys) {
    const torch::NoGradGuard no_grad;
    const variable_list saved = ctx->get_saved_variables();
    const auto style = static_cast<ParallelStyle>(ctx->saved_data["side"].toInt());
    const size_t stride = ctx->saved_data["bias"].toBool() ? 2 : 1;
    variable_list gradients(saved.size() + 1);  // x, parameters ..., form
    if (ctx->saved_data["joins"].toBool() && fused_backward(ctx, saved, dys, gradients[0]))
      return gradients;
    // Split by inputs, a bias is added to this rank's shard of the tokens, so its gradient is of
    // that shard.
    for (size_t i = 0; stride == 2 && i < dys.size(); ++i) {
      const size_t at = 2 + 2 * i;
      if (dys[i].defined() && ctx->needs_input_grad(at))
        gradients[at] = accumulate_bias_grad(saved[at], rows(dys[i]));
    }
    if (style == ParallelStyle::kRowwise && dys[0].defined()) {
      dys[0] = saved_tensor_parallel(ctx)->all_gather(rows(dys[0]), kOutputGradients);
    }
    AsyncCollectiveTensor gathered_input;  // full input, of which this rank has kept its own shard
    if (style == ParallelStyle::kColwise && needs_weight_grad(ctx, dys, stride)) {
      gathered_input = saved_tensor_parallel(ctx)->all_gather_async(saved[0], kInputs);
    }
    const Tensor dx = ctx->needs_input_grad(0) ? input_gradient(ctx, saved, dys, stride) : Tensor();
    AsyncCollectiveTensor local;
    if (style == ParallelStyle::kColwise && dx.defined())
      local = saved_tensor_parallel(ctx)->reduce_scatter_async(dx, kInputGradients);
    const Tensor input = style == ParallelStyle::kColwise ? gathered_input.wait() : saved[0];
    for (size_t i = 0; i < dys.size(); ++i) {
      const size_t at = 1 + i * stride;
      if (dys[i].defined() && ctx->needs_input_grad(at))
        gradients[at] = weight_gradient(ctx, saved[at], rows(input), rows(dys[i]));
    }
    if (dx.defined())
      gradients[0] = style == ParallelStyle::kColwise ? local.wait() : dx.view(saved[0].sizes());
    return gradients;
  }

 private:
  // Names of the exchanged tensors in messages.
  static constexpr const char* kInputs = "inputs of products";
  static constexpr const char* kOutputs = "outputs of products";
  static constexpr const char* kInputGradients = "gradients of inputs of products";
  static constexpr const char* kOutputGradients = "gradients of outputs of products";

  static variable_list fused_outputs(const Tensor& x, const Tensor& weight,
                                     at::TensorList weights) {
    std::vector<int64_t> sizes;
    for (const Tensor& part : weights) sizes.push_back(part.size(0));
    return at::unsafe_split_with_sizes(product(x, weight, Tensor(), WeightLayout::kOutIn), sizes,
                                       -1);
  }

  // Computes the gradients as those of one product. Returns false, with nothing delivered, if it
  // cannot.
  static bool fused_backward(AutogradContext* ctx, const variable_list& saved,
                             const variable_list& dys, Tensor& dx) {
    const auto weights = at::TensorList(saved).slice(1);
    std::vector<Tensor> parts;
    for (size_t i = 0; i < dys.size(); ++i) {
      if (!dys[i].defined() || !ctx->needs_input_grad(1 + i)) return false;
      parts.push_back(rows(dys[i]));
    }
    const Tensor weight = fused_weight(saved[0], weights);
    if (!weight.defined()) return false;
    Tensor dy = concatenated_view(parts, 1);
    if (!dy.defined()) dy = at::cat(parts, 1);
    if (!accumulate_wgrads(weights, dy, rows(saved[0]))) return false;
    if (ctx->needs_input_grad(0)) dx = matrix_product(dy, weight).view(saved[0].sizes());
    return true;
  }

  // Returns whether any of the weights gets a gradient.
  static bool needs_weight_grad(AutogradContext* ctx, const variable_list& dys, size_t stride) {
    for (size_t i = 0; i < dys.size(); ++i) {
      if (dys[i].defined() && ctx->needs_input_grad(1 + i * stride)) return true;
    }
    return false;
  }

  static Tensor reduce_scatter_output(const Tensor& addend, const Tensor& bias,
                                      const TensorParallel& tp) {
    Tensor local = tp.reduce_scatter(addend, kOutputs);
    return bias.defined() ? local.add_(bias) : local;
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
    return ctx->saved_data["in_out"].toBool() ? accumulate_wgrad(weight, x, dy)
                                              : accumulate_wgrad(weight, dy, x);
  }

  static Tensor accumulate_bias_grad(const Tensor& bias, const Tensor& dy) {
    const Tensor grad_view = main_grad(bias);
    const auto dtype = (grad_view.defined() ? grad_view : bias).scalar_type();
    return accumulate_grad(bias, dy.sum({0}, false, dtype));
  }
};

variable_list products(const Tensor& x, std::initializer_list<const Linear*> layers) {
  const Linear& first = **layers.begin();
  const LinearForm form{first.layout, first.bias.defined(), first.shard.style, first.tp};
  std::vector<Tensor> parameters;
  for (const Linear* layer : layers) {
    ZEROTH_CHECK(layer->layout == form.layout && layer->bias.defined() == form.bias &&
                     layer->shard.style == form.style,
                 "one layout, one kind of bias and one cut for all products of an input");
    parameters.push_back(layer->weight);
    if (form.bias) parameters.push_back(layer->bias);
  }
  return LinearFunction::apply(x, at::TensorList(parameters), form);
}

Tensor meta_parameter(at::IntArrayRef sizes) {
  return torch::empty(sizes, torch::dtype(torch::kFloat32).device(torch::kMeta));
}

}  // namespace

Linear::Linear(const LinearShape& shape) : layout(shape.layout), shard(shape.shard), tp(shape.tp) {
  const int64_t in = shard.style == ParallelStyle::kRowwise ? shard.extent : shape.in;
  const int64_t out = shard.style == ParallelStyle::kColwise ? shard.extent : shape.out;
  const bool out_in = layout == WeightLayout::kOutIn;
  weight = register_parameter("weight", meta_parameter({out_in ? out : in, out_in ? in : out}));
  if (shape.bias) bias = register_parameter("bias", meta_parameter({out}));
}

void Linear::add_splits(const std::string& path, Splits& splits) const {
  if (shard.style == ParallelStyle::kNone) return;
  const size_t last = path.rfind('.') + 1;
  const std::string full_name = shard.product.empty() ? path : path.substr(0, last) + shard.product;
  const size_t dim =
      (shard.style == ParallelStyle::kColwise) == (layout == WeightLayout::kOutIn) ? 0 : 1;
  Split split{full_name + ".weight", weight.sizes().vec(), {0, 0}, shard.num_replicas};
  split.shape[dim] = shard.full_size;
  split.begin[dim] = shard.begin;
  splits[path + ".weight"] = split;
  if (bias.defined() && shard.style == ParallelStyle::kColwise)
    splits[path + ".bias"] = {
        full_name + ".bias", {shard.full_size}, {shard.begin}, shard.num_replicas};
}

Splits linear_splits(const torch::nn::Module& block) {
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
  return LinearFunction::apply(x, at::TensorList(parameters), LinearForm())[0];
}

}  // namespace zeroth::model
