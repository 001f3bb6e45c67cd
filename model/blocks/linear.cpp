#include "model/blocks/linear.h"

#include <ATen/ops/_unsafe_view.h>
#include <ATen/ops/unsafe_split_with_sizes.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/error.h"
#include "model/blocks/main_grad.h"
#include "model/blocks/quantized_product.h"
#include "model/custom_function.h"
#include "model/kernels/matrix_product.h"

namespace zeroth::model {
namespace {

using torch::Tensor;

Tensor rows(const Tensor& x) {
  return x.reshape({-1, x.size(-1)});
}

// Returns y [rows of x, out] as [..., out], where x is [..., in].
Tensor in_shape_of(const Tensor& x, const Tensor& y) {
  std::vector<int64_t> sizes = x.sizes().vec();
  sizes.back() = y.size(1);
  return at::_unsafe_view(y, sizes);
}

Tensor product(const Tensor& x, const Tensor& weight, const Tensor& bias, WeightLayout layout) {
  const Tensor in_out = layout == WeightLayout::kOutIn ? weight.t() : weight;
  return in_shape_of(x, matrix_product(rows(x), in_out, bias));
}

// Delivers the gradient of a bias, summed in the dtype of the open view, or returns it.
Tensor bias_gradient(const Tensor& bias, const Tensor& dy) {
  if (defer_grad(bias, [=] { bias_gradient(bias, dy); })) return {};
  const Tensor grad_view = main_grad(bias);
  const auto dtype = (grad_view.defined() ? grad_view : bias).scalar_type();
  return accumulate_grad(bias, dy.sum({0}, false, dtype));
}

// Names of the exchanged tensors in messages.
constexpr const char* kInputs = "inputs of products";
constexpr const char* kOutputs = "outputs of products";
constexpr const char* kInputGradients = "gradients of inputs of products";
constexpr const char* kOutputGradients = "gradients of outputs of products";

// LinearForm holds what the products of one input have in common, and their adapters.
struct LinearForm {
  WeightLayout layout = WeightLayout::kOutIn;
  bool bias = false;
  ParallelStyle style = ParallelStyle::kNone;
  TensorParallelPtr tp = nullptr;
  std::vector<int64_t> out_features = {};  // of each product
  LoraProducts adapters = {};
  // Of each weight, if they are in NF4: what its codes do not say of it.
  std::vector<Linear::QuantizedWeight> nf4 = {};

  bool can_fuse() const {
    return layout == WeightLayout::kOutIn && !bias && style == ParallelStyle::kNone;
  }
};

// LinearFunction computes any number of products of one input. Inputs are x, then weight, weight,
// ... or weight, bias, weight, bias, ..., then the factors of adapters: a, b, a, b, ...
class LinearFunction final : public CustomFunction {
 public:
  explicit LinearFunction(LinearForm form) : form_(std::move(form)), stride_(form_.bias ? 2 : 1) {}

  TensorVector forward(const FunctionContext& context, const TensorVector& inputs) override {
    context.keep_undefined_grads();
    num_inputs_ = inputs.size();
    dtype_ = inputs[0].scalar_type();
    x_sizes_ = inputs[0].sizes().vec();
    const TensorVector outputs = products(inputs);
    TensorVector saved = inputs;
    if (!needs_input(inputs)) saved[0] = Tensor();
    if (form_.adapters.size() > 0) {
      TensorVector rows_of_outputs;
      for (const Tensor& y : outputs) rows_of_outputs.push_back(rows(y));
      const TensorVector low_rank =
          form_.adapters.forward(rows(inputs[0]), factors(inputs), rows_of_outputs);
      saved.insert(saved.end(), low_rank.begin(), low_rank.end());
    }
    context.save_for_backward(std::move(saved));
    return outputs;
  }

  TensorVector backward(const FunctionContext& context, TensorVector grads) const override {
    const TensorVector saved = context.saved();
    TensorVector gradients(num_inputs_);
    const TensorVector own_grads = grads;
    // Split by inputs, a bias is added to this rank's shard of the tokens, so its gradient is of
    // that shard.
    for (size_t i = 0; form_.bias && i < grads.size(); ++i) {
      const size_t at = 2 + 2 * i;
      if (!grads[i].defined() || !context.needs_input_grad(at)) continue;
      gradients[at] = bias_gradient(saved[at], rows(grads[i]));
    }
    if (form_.style == ParallelStyle::kRowwise && grads[0].defined()) {
      grads[0] = form_.tp->all_gather(rows(grads[0]), kOutputGradients);
    }
    AsyncCollectiveTensor gathered_input;  // full input, of which this rank has kept its own shard
    if (form_.style == ParallelStyle::kColwise && needs_weight_grad(context, grads)) {
      gathered_input = form_.tp->all_gather_async(saved[0], kInputs);
    }
    const bool needs_dx = context.needs_input_grad(0);
    // Only dx reads weights in NF4, which have no gradient.
    Tensor fused = needs_dx || form_.nf4.empty() ? fused_weight(saved) : Tensor();
    const Tensor dy = fused.defined() ? fused_output_gradient(grads) : Tensor();
    Tensor dx;
    if (needs_dx) dx = dy.defined() ? matrix_product(dy, fused) : input_gradient(saved, grads);
    fused = Tensor();
    AsyncCollectiveTensor local;
    if (form_.style == ParallelStyle::kColwise && dx.defined())
      local = form_.tp->reduce_scatter_async(dx, kInputGradients);
    const Tensor input = form_.style == ParallelStyle::kColwise ? gathered_input.wait() : saved[0];
    if (!add_fused_weight_gradients(context, saved, dy)) {
      for (size_t i = 0; i < grads.size(); ++i) {
        const size_t at = weight_at(i);
        if (grads[i].defined() && context.needs_input_grad(at))
          gradients[at] = weight_gradient(saved[at], rows(input), rows(grads[i]));
      }
    }
    if (form_.style == ParallelStyle::kColwise && dx.defined()) dx = local.wait();
    if (form_.adapters.size() > 0) add_adapter_gradients(saved, own_grads, dx, gradients);
    if (dx.defined()) gradients[0] = dx.view(x_sizes_);
    return gradients;
  }

 private:
  // Return the positions of tensors among the inputs.
  size_t weight_at(size_t product) const { return 1 + product * stride_; }
  size_t first_factor() const { return num_inputs_ - 2 * form_.adapters.size(); }
  size_t num_products() const { return (first_factor() - 1) / stride_; }

  QuantizedProduct quantized(const TensorVector& inputs, size_t product) const {
    const Linear::QuantizedWeight& own = form_.nf4[product];
    return {{inputs[weight_at(product)], own.scales}, own.dtype};
  }

  // Returns the weights. Those in NF4 are dequantized to the dtype of x, one above the other in one
  // piece of memory, which exists until the caller drops it.
  TensorVector weights(const TensorVector& inputs) const {
    TensorVector weights;
    for (size_t i = 0; i < num_products(); ++i) weights.push_back(inputs[weight_at(i)]);
    if (form_.nf4.empty()) return weights;
    const std::vector<int64_t>& rows = form_.out_features;
    const Tensor all = at::empty({std::reduce(rows.begin(), rows.end()), x_sizes_.back()},
                                 weights.front().options().dtype(dtype_));
    weights = all.split_with_sizes(rows);
    for (size_t i = 0; i < weights.size(); ++i) quantized(inputs, i).dequantize(weights[i]);
    return weights;
  }

  // Returns the weights as one, if a single product can replace theirs: on a GPU, which small
  // products do not fill, if they are adjacent in memory. Returns undefined otherwise.
  Tensor fused_weight(const TensorVector& inputs) const {
    const bool fits = form_.can_fuse() && num_products() > 1 && inputs[weight_at(0)].is_cuda();
    return fits ? concatenated_view(weights(inputs), 0) : Tensor();
  }

  std::vector<LoraFactors> factors(const TensorVector& inputs) const {
    std::vector<LoraFactors> factors;
    for (size_t at = first_factor(); at < num_inputs_; at += 2)
      factors.push_back({inputs[at], inputs[at + 1]});
    return factors;
  }

  // Returns whether the backward reads x: for the gradient of a weight or a factor.
  bool needs_input(const TensorVector& inputs) const {
    for (size_t i = 0; i < num_products(); ++i) {
      if (inputs[weight_at(i)].requires_grad()) return true;
    }
    return form_.adapters.size() > 0;
  }

  TensorVector products(const TensorVector& inputs) const {
    const Tensor& x = inputs[0];
    const Tensor input =
        form_.style == ParallelStyle::kColwise ? form_.tp->all_gather(x, kInputs) : x;
    if (const Tensor fused = fused_weight(inputs); fused.defined()) return fused_outputs(x, fused);
    TensorVector outputs;
    for (size_t i = 0; i < num_products(); ++i) {
      const Tensor bias = form_.bias ? inputs[weight_at(i) + 1] : Tensor();
      const bool reduces = form_.style == ParallelStyle::kRowwise;
      const Tensor added = reduces ? Tensor() : bias;
      Tensor y = form_.nf4.empty()
                     ? product(input, inputs[weight_at(i)], added, form_.layout)
                     : in_shape_of(input, quantized(inputs, i).forward(rows(input), added,
                                                                       form_.out_features[i]));
      if (reduces) y = form_.tp->reduce_scatter(y, kOutputs);
      if (reduces && bias.defined()) y.add_(bias);
      outputs.push_back(y);
    }
    return outputs;
  }

  TensorVector fused_outputs(const Tensor& x, const Tensor& weight) const {
    const std::vector<int64_t>& sizes = form_.out_features;
    return at::unsafe_split_with_sizes(product(x, weight, Tensor(), WeightLayout::kOutIn), sizes,
                                       -1);
  }

  // Returns the gradients of the outputs as those of one product; undefined if one is missing.
  static Tensor fused_output_gradient(const TensorVector& grads) {
    std::vector<Tensor> parts;
    for (const Tensor& grad : grads) {
      if (!grad.defined()) return {};
      parts.push_back(rows(grad));
    }
    const Tensor dy = concatenated_view(parts, 1);
    return dy.defined() ? dy : at::cat(parts, 1);
  }

  // Adds the weights' gradients as those of one product. Returns false, with nothing delivered, if
  // it cannot.
  bool add_fused_weight_gradients(const FunctionContext& context, const TensorVector& saved,
                                  const Tensor& dy) const {
    if (!dy.defined()) return false;
    for (size_t i = 0; i < num_products(); ++i) {
      if (!context.needs_input_grad(weight_at(i))) return false;
    }
    return accumulate_wgrads(weights(saved), dy, rows(saved[0]));
  }

  // Returns whether any of the weights gets a gradient.
  bool needs_weight_grad(const FunctionContext& context, const TensorVector& grads) const {
    for (size_t i = 0; i < grads.size(); ++i) {
      if (grads[i].defined() && context.needs_input_grad(weight_at(i))) return true;
    }
    return false;
  }

  // Returns [rows, in].
  Tensor input_gradient(const TensorVector& saved, const TensorVector& grads) const {
    Tensor dx;
    for (size_t i = 0; i < grads.size(); ++i) {
      if (!grads[i].defined()) continue;
      if (!form_.nf4.empty()) {
        dx = quantized(saved, i).input_gradient(rows(grads[i]), x_sizes_.back(), dx);
        continue;
      }
      const Tensor& own = saved[weight_at(i)];
      const Tensor out_in = form_.layout == WeightLayout::kInOut ? own.t() : own;
      if (dx.defined()) {
        write_matrix_product(dx, rows(grads[i]), out_in, /*add=*/true);
      } else {
        dx = matrix_product(rows(grads[i]), out_in);
      }
    }
    return dx;
  }

  void add_adapter_gradients(const TensorVector& saved, const TensorVector& grads, const Tensor& dx,
                             TensorVector& gradients) const {
    TensorVector dy;
    for (const Tensor& grad : grads) dy.push_back(grad.defined() ? rows(grad) : grad);
    const TensorVector low_rank(saved.begin() + static_cast<ptrdiff_t>(num_inputs_), saved.end());
    const TensorVector of_factors =
        form_.adapters.backward(rows(saved[0]), factors(saved), low_rank, dy, dx);
    std::ranges::copy(of_factors, gradients.begin() + static_cast<ptrdiff_t>(first_factor()));
  }

  Tensor weight_gradient(const Tensor& weight, const Tensor& x, const Tensor& dy) const {
    return form_.layout == WeightLayout::kInOut ? accumulate_wgrad(weight, x, dy)
                                                : accumulate_wgrad(weight, dy, x);
  }

  LinearForm form_;
  size_t stride_;  // of the weights among the inputs
  size_t num_inputs_ = 0;
  torch::Dtype dtype_ = torch::kFloat;  // of x
  std::vector<int64_t> x_sizes_;
};

// ReducePartialSums returns this rank's shard of the sum over the ranks, plus the biases. Inputs
// are this rank's partial sums, which it may overwrite, and the biases.
class ReducePartialSums final : public CustomFunction {
 public:
  explicit ReducePartialSums(TensorParallelPtr tp) : tp_(std::move(tp)) {}

  TensorVector forward(const FunctionContext& context, const TensorVector& inputs) override {
    Tensor y = tp_->reduce_scatter(inputs[0], kOutputs);
    const TensorVector biases(inputs.begin() + 1, inputs.end());
    for (const Tensor& bias : biases) y.add_(bias);
    context.save_for_backward(biases);
    return {y};
  }

  TensorVector backward(const FunctionContext& context, TensorVector grads) const override {
    TensorVector gradients(1);
    for (const Tensor& bias : context.saved()) {
      const bool needed = context.needs_input_grad(gradients.size());
      gradients.push_back(needed ? bias_gradient(bias, grads[0]) : Tensor());
    }
    if (context.needs_input_grad(0)) gradients[0] = tp_->all_gather(grads[0], kOutputGradients);
    return gradients;
  }

 private:
  TensorParallelPtr tp_;
};

// Returns this rank's partial sum of the product, without the bias.
Tensor partial_sum(const RowwiseProduct& product) {
  const Linear& layer = product.layer;
  LinearForm form{.layout = layer.layout, .out_features = {layer.out}};
  if (layer.quantized) form.nf4 = {*layer.quantized};
  return apply_function(std::make_shared<LinearFunction>(std::move(form)),
                        {product.x, layer.weight})[0];
}

}  // namespace

Tensor rowwise_sum(const RowwiseProduct& a, const RowwiseProduct& b) {
  for (const Linear* layer : {&a.layer, &b.layer}) {
    ZEROTH_CHECK(!layer->adapter && layer->shard.style == ParallelStyle::kRowwise,
                 "a rowwise sum needs products that are split by inputs, without adapters");
  }
  TensorVector inputs = {partial_sum(a).add_(partial_sum(b))};
  for (const Linear* layer : {&a.layer, &b.layer})
    if (layer->bias.defined()) inputs.push_back(layer->bias);
  return apply_function(std::make_shared<ReducePartialSums>(a.layer.tp), inputs)[0];
}

std::vector<Tensor> linear(const Tensor& x, std::initializer_list<const Linear*> layers,
                           const MicroBatch& batch) {
  const Linear& first = **layers.begin();
  TensorVector inputs = {x}, factors;
  std::vector<int64_t> out_features;
  std::vector<Linear::QuantizedWeight> nf4;
  LoraForm adapters{.style = first.shard.style, .tp = first.tp};
  bool drops = false;
  for (const Linear* const& layer : layers) {
    ZEROTH_CHECK(layer->layout == first.layout && layer->bias.defined() == first.bias.defined() &&
                     layer->shard.style == first.shard.style &&
                     layer->quantized.has_value() == first.quantized.has_value(),
                 "products of one input must have the same layout, kind of bias, split and format");
    inputs.push_back(layer->weight);
    out_features.push_back(layer->out);
    if (layer->quantized) nf4.push_back(*layer->quantized);
    if (first.bias.defined()) inputs.push_back(layer->bias);
    if (!layer->adapter) continue;
    const auto& [own, scale, dropout] = *layer->adapter;
    const auto product = static_cast<size_t>(&layer - layers.begin());
    adapters.adapters.push_back({.product = product, .scale = scale, .dropout = dropout});
    factors.insert(factors.end(), {own.a, own.b});
    drops = drops || applies_dropout(dropout, batch);
  }
  inputs.insert(inputs.end(), factors.begin(), factors.end());
  if (drops) {
    adapters.samples = seeded_samples(batch);
    if (first.tp && first.shard.style != ParallelStyle::kRowwise)
      adapters.first_token = sequence_shard(batch.tokens.numel(), *first.tp).first;
    if (first.shard.style == ParallelStyle::kRowwise) adapters.first_input = first.shard.begin;
  }
  LinearForm form{first.layout,  first.bias.defined(),    first.shard.style,
                  first.tp,      std::move(out_features), LoraProducts(std::move(adapters)),
                  std::move(nf4)};
  return apply_function(std::make_shared<LinearFunction>(std::move(form)), inputs);
}

Tensor linear(const Tensor& x, const Linear& layer, const MicroBatch& batch) {
  return linear(x, {&layer}, batch)[0];
}

Tensor project(const Tensor& x, const Tensor& weight) {
  return apply_function(std::make_shared<LinearFunction>(LinearForm()), {x, weight})[0];
}

}  // namespace zeroth::model
