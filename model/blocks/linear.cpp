#include "model/blocks/linear.h"

#include <ATen/ops/_unsafe_view.h>
#include <ATen/ops/unsafe_split_with_sizes.h>

#include <utility>

#include "base/error.h"
#include "model/blocks/main_grad.h"
#include "model/custom_function.h"
#include "model/kernels/matrix_product.h"

namespace zeroth::model {
namespace {

using torch::Tensor;

Tensor rows(const Tensor& x) {
  return x.reshape({-1, x.size(-1)});
}

Tensor product(const Tensor& x, const Tensor& weight, const Tensor& bias, WeightLayout layout) {
  const Tensor in_out = layout == WeightLayout::kOutIn ? weight.t() : weight;
  const Tensor y = matrix_product(rows(x), in_out, bias);
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

// LinearFunction computes any number of products of one input. Inputs are x, then weight, weight,
// ... or weight, bias, weight, bias, ...
class LinearFunction final : public CustomFunction {
 public:
  explicit LinearFunction(LinearForm form) : form_(std::move(form)), stride_(form_.bias ? 2 : 1) {}

  TensorVector forward(const FunctionContext& context, const TensorVector& inputs) override {
    context.keep_undefined_grads();
    context.save_for_backward(inputs);
    const Tensor& x = inputs[0];
    const Tensor input =
        form_.style == ParallelStyle::kColwise ? form_.tp->all_gather(x, kInputs) : x;
    if (form_.can_fuse()) {
      const auto weights = at::TensorList(inputs).slice(1);
      const Tensor weight = fused_weight(x, weights);
      if (weight.defined()) return fused_outputs(x, weight, weights);
    }
    TensorVector outputs;
    for (size_t i = 1; i < inputs.size(); i += stride_) {
      const Tensor bias = form_.bias ? inputs[i + 1] : Tensor();
      const bool reduces = form_.style == ParallelStyle::kRowwise;
      Tensor y = product(input, inputs[i], reduces ? Tensor() : bias, form_.layout);
      if (reduces) y = form_.tp->reduce_scatter(y, kOutputs);
      if (reduces && bias.defined()) y.add_(bias);
      outputs.push_back(y);
    }
    return outputs;
  }

  TensorVector backward(const FunctionContext& context, TensorVector grads) const override {
    const TensorVector saved = context.saved();
    TensorVector gradients(saved.size());
    if (form_.can_fuse() && fused_backward(context, saved, grads, gradients[0])) return gradients;
    // Split by inputs, a bias is added to this rank's shard of the tokens, so its gradient is of
    // that shard.
    for (size_t i = 0; form_.bias && i < grads.size(); ++i) {
      const size_t at = 2 + 2 * i;
      if (!grads[i].defined() || !context.needs_input_grad(at)) continue;
      const Tensor grad_view = main_grad(saved[at]);
      const auto dtype = (grad_view.defined() ? grad_view : saved[at]).scalar_type();
      gradients[at] = accumulate_grad(saved[at], rows(grads[i]).sum({0}, false, dtype));
    }
    if (form_.style == ParallelStyle::kRowwise && grads[0].defined()) {
      grads[0] = form_.tp->all_gather(rows(grads[0]), kOutputGradients);
    }
    AsyncCollectiveTensor gathered_input;  // full input, of which this rank has kept its own shard
    if (form_.style == ParallelStyle::kColwise && needs_weight_grad(context, grads)) {
      gathered_input = form_.tp->all_gather_async(saved[0], kInputs);
    }
    const Tensor dx = context.needs_input_grad(0) ? input_gradient(saved, grads) : Tensor();
    AsyncCollectiveTensor local;
    if (form_.style == ParallelStyle::kColwise && dx.defined())
      local = form_.tp->reduce_scatter_async(dx, kInputGradients);
    const Tensor input = form_.style == ParallelStyle::kColwise ? gathered_input.wait() : saved[0];
    for (size_t i = 0; i < grads.size(); ++i) {
      const size_t at = 1 + i * stride_;
      if (grads[i].defined() && context.needs_input_grad(at))
        gradients[at] = weight_gradient(saved[at], rows(input), rows(grads[i]));
    }
    if (dx.defined()) {
      gradients[0] =
          form_.style == ParallelStyle::kColwise ? local.wait() : dx.view(saved[0].sizes());
    }
    return gradients;
  }

 private:
  // Names of the exchanged tensors in messages.
  static constexpr const char* kInputs = "inputs of products";
  static constexpr const char* kOutputs = "outputs of products";
  static constexpr const char* kInputGradients = "gradients of inputs of products";
  static constexpr const char* kOutputGradients = "gradients of outputs of products";

  static TensorVector fused_outputs(const Tensor& x, const Tensor& weight, at::TensorList weights) {
    std::vector<int64_t> sizes;
    for (const Tensor& part : weights) sizes.push_back(part.size(0));
    return at::unsafe_split_with_sizes(product(x, weight, Tensor(), WeightLayout::kOutIn), sizes,
                                       -1);
  }

  // Computes the gradients as those of one product. Returns false, with nothing delivered, if it
  // cannot.
  static bool fused_backward(const FunctionContext& context, const TensorVector& saved,
                             const TensorVector& grads, Tensor& dx) {
    const auto weights = at::TensorList(saved).slice(1);
    std::vector<Tensor> parts;
    for (size_t i = 0; i < grads.size(); ++i) {
      if (!grads[i].defined() || !context.needs_input_grad(1 + i)) return false;
      parts.push_back(rows(grads[i]));
    }
    const Tensor weight = fused_weight(saved[0], weights);
    if (!weight.defined()) return false;
    Tensor dy = concatenated_view(parts, 1);
    if (!dy.defined()) dy = at::cat(parts, 1);
    if (!accumulate_wgrads(weights, dy, rows(saved[0]))) return false;
    if (context.needs_input_grad(0)) dx = matrix_product(dy, weight).view(saved[0].sizes());
    return true;
  }

  // Returns whether any of the weights gets a gradient.
  bool needs_weight_grad(const FunctionContext& context, const TensorVector& grads) const {
    for (size_t i = 0; i < grads.size(); ++i) {
      if (grads[i].defined() && context.needs_input_grad(1 + i * stride_)) return true;
    }
    return false;
  }

  Tensor input_gradient(const TensorVector& saved, const TensorVector& grads) const {
    Tensor dx;
    for (size_t i = 0; i < grads.size(); ++i) {
      if (!grads[i].defined()) continue;
      const Tensor& weight = saved[1 + i * stride_];
      const Tensor out_in = form_.layout == WeightLayout::kInOut ? weight.t() : weight;
      if (dx.defined()) {
        write_matrix_product(dx, rows(grads[i]), out_in, /*add=*/true);
      } else {
        dx = matrix_product(rows(grads[i]), out_in);
      }
    }
    return dx;
  }

  Tensor weight_gradient(const Tensor& weight, const Tensor& x, const Tensor& dy) const {
    return form_.layout == WeightLayout::kInOut ? accumulate_wgrad(weight, x, dy)
                                                : accumulate_wgrad(weight, dy, x);
  }

  LinearForm form_;
  size_t stride_;  // of the weights among the parameters
};

}  // namespace

Linear::Linear(const LinearShape& shape) : layout(shape.layout), shard(shape.shard), tp(shape.tp) {
  const int64_t in = shard.style == ParallelStyle::kRowwise ? shard.extent : shape.in;
  const int64_t out = shard.style == ParallelStyle::kColwise ? shard.extent : shape.out;
  const bool out_in = layout == WeightLayout::kOutIn;
  weight = register_parameter("weight", meta_parameter({out_in ? out : in, out_in ? in : out}));
  if (shape.bias) bias = register_parameter("bias", meta_parameter({out}));
}

Splits linear_splits(const torch::nn::Module& block) {
  Splits splits;
  for (const auto& item : block.named_modules("", /*include_self=*/false)) {
    const auto* const layer = item.value()->as<Linear>();
    if (layer == nullptr || layer->shard.style == ParallelStyle::kNone) continue;
    const WeightShard& shard = layer->shard;
    const std::string& path = item.key();  // the product's name in its block: "attention.q"
    const std::string full_name =
        shard.product.empty() ? path : path.substr(0, path.rfind('.') + 1) + shard.product;
    const bool by_outputs = shard.style == ParallelStyle::kColwise;
    const size_t dim = by_outputs == (layer->layout == WeightLayout::kOutIn) ? 0 : 1;
    Split split{full_name + ".weight", layer->weight.sizes().vec(), {0, 0}, shard.num_replicas};
    split.shape[dim] = shard.full_size;
    split.begin[dim] = shard.begin;
    splits[path + ".weight"] = split;
    if (layer->bias.defined() && by_outputs) {
      splits[path + ".bias"] = {
          full_name + ".bias", {shard.full_size}, {shard.begin}, shard.num_replicas};
    }
  }
  return splits;
}

std::vector<Tensor> linear(const Tensor& x, std::initializer_list<const Linear*> layers) {
  const Linear& first = **layers.begin();
  const LinearForm form{first.layout, first.bias.defined(), first.shard.style, first.tp};
  TensorVector inputs = {x};
  for (const Linear* layer : layers) {
    ZEROTH_CHECK(layer->layout == form.layout && layer->bias.defined() == form.bias &&
                     layer->shard.style == form.style,
                 "products of one input must have the same layout, kind of bias and split");
    inputs.push_back(layer->weight);
    if (form.bias) inputs.push_back(layer->bias);
  }
  return apply_function(std::make_shared<LinearFunction>(form), inputs);
}

Tensor linear(const Tensor& x, const Linear& layer) {
  return linear(x, {&layer})[0];
}

Tensor project(const Tensor& x, const Tensor& weight) {
  return apply_function(std::make_shared<LinearFunction>(LinearForm()), {x, weight})[0];
}

}  // namespace zeroth::model
