#include "model/blocks/norm.h"

#include <ATen/ops/full.h>
#include <ATen/ops/native_layer_norm.h>
#include <ATen/ops/native_layer_norm_backward.h>

#include <array>
#include <tuple>
#include <utility>

#include "base/error.h"
#include "model/blocks/main_grad.h"
#include "model/custom_function.h"
#include "model/kernels/fused.h"

namespace zeroth::model {
namespace {

using torch::Tensor;

// RmsNorm returns x, or x + addend, and its norm. Inputs are x, the addend if there is one, and the
// weight.
class RmsNorm final : public CustomFunction {
 public:
  explicit RmsNorm(const NormSpec& spec)
      : eps_(spec.eps), offset_(spec.weight_offset), product_in_fp32_(spec.product_in_fp32) {}

  TensorVector forward(const FunctionContext& context, const TensorVector& inputs) override {
    context.keep_undefined_grads();
    const Tensor &x = inputs.front(), &weight = inputs.back();
    Tensor sum = x, y, scale;
    adds_ = inputs.size() == 3;
    if (adds_) {
      std::tie(sum, y, scale) = add_rms_norm(x, inputs[1], weight, eps_, offset_, product_in_fp32_);
    } else {
      std::tie(y, scale) = rms_norm(x, weight, eps_, offset_, product_in_fp32_);
    }
    context.save_for_backward({sum, weight, scale});
    return {sum, y};
  }

  TensorVector backward(const FunctionContext& context, TensorVector grads) const override {
    const TensorVector saved = context.saved();
    Tensor dsum = grads[0], dweight;
    if (grads[1].defined()) {
      const std::array<bool, 2> output_mask = {
          context.needs_input_grad(0) || (adds_ && context.needs_input_grad(1)),
          context.needs_input_grad(adds_ ? 2 : 1)};
      const std::optional<Tensor> residual = dsum.defined() ? std::optional(dsum) : std::nullopt;
      std::tie(dsum, dweight) = rms_norm_backward(grads[1], saved, residual, output_mask, offset_);
      if (dweight.defined()) dweight = accumulate_grad(saved[1], dweight);
    }
    return adds_ ? TensorVector{dsum, dsum, dweight} : TensorVector{dsum, dweight};
  }

 private:
  double eps_, offset_;  // offset of the weight
  bool product_in_fp32_;
  bool adds_ = false;
};

// Widens 16-bit tensors on a CPU. There torch's LayerNorm sums the gradients of weight and bias
// over the rows in the dtype of x, where a sum in 16 bits soon stops growing, and keeps the rows'
// means in the dtype of the weight.
Tensor wide_on_cpu(const Tensor& tensor) {
  const bool is_16_bit = at::isReducedFloatingType(tensor.scalar_type());
  return tensor.is_cpu() && is_16_bit ? tensor.to(torch::kFloat) : tensor;
}

// LayerNorm returns the norm of x. Inputs are x, the weight if there is one, and then the bias if
// there is one.
class LayerNorm final : public CustomFunction {
 public:
  LayerNorm(int64_t size, double eps, double offset) : size_{size}, eps_(eps), offset_(offset) {}

  TensorVector forward(const FunctionContext& context, const TensorVector& inputs) override {
    num_inputs_ = inputs.size();
    TensorVector all = inputs;
    all.resize(3);
    auto [y, mean, scale] = at::native_layer_norm(all[0], size_, factor(all), addend(all), eps_);
    all.insert(all.end(), {mean, scale});
    context.save_for_backward(std::move(all));
    return {y};
  }

  TensorVector backward(const FunctionContext& context, TensorVector grads) const override {
    const TensorVector saved = context.saved();
    const auto needs_grad = [&](size_t input) {
      return input < num_inputs_ && context.needs_input_grad(input);
    };
    auto [dx, dweight, dbias] = at::native_layer_norm_backward(
        wide_on_cpu(grads[0]).contiguous(), wide_on_cpu(saved[0]), size_, saved[3], saved[4],
        factor(saved), addend(saved), {needs_grad(0), needs_grad(1), needs_grad(2)});
    if (dx.defined()) dx = dx.to(saved[0].scalar_type());
    if (dweight.defined()) dweight = accumulate_grad(saved[1], dweight);
    if (dbias.defined()) dbias = accumulate_grad(saved[2], dbias);
    TensorVector gradients = {dx, dweight, dbias};
    gradients.resize(num_inputs_);
    return gradients;
  }

 private:
  // Return the weight with its offset, and the bias, of {x, weight, bias}. If one is missing, those
  // of a 16-bit x on a CPU are constants, which keep the rows' means in fp32.
  std::optional<Tensor> factor(const TensorVector& inputs) const {
    if (!inputs[1].defined()) return constant(inputs[0], 1);
    return offset_ == 0 ? wide_on_cpu(inputs[1]) : wide_on_cpu(inputs[1]) + offset_;
  }
  std::optional<Tensor> addend(const TensorVector& inputs) const {
    return inputs[2].defined() ? wide_on_cpu(inputs[2]) : constant(inputs[0], 0);
  }
  std::optional<Tensor> constant(const Tensor& x, double value) const {
    if (!x.is_cpu() || !at::isReducedFloatingType(x.scalar_type())) return std::nullopt;
    return at::full(size_, value, x.options().dtype(torch::kFloat));
  }

  std::array<int64_t, 1> size_;
  double eps_, offset_;  // offset of the weight
  size_t num_inputs_ = 0;
};

// ScaleHeads multiplies x [..., heads, size] by weight [heads, size].
struct ScaleHeads final : CustomFunction {
  TensorVector forward(const FunctionContext& context, const TensorVector& inputs) override {
    context.save_for_backward(inputs);
    return {inputs[0] * inputs[1]};
  }

  TensorVector backward(const FunctionContext& context, TensorVector grads) const override {
    const TensorVector saved = context.saved();
    const Tensor &x = saved[0], &weight = saved[1];
    Tensor dweight;
    if (context.needs_input_grad(1)) {
      const Tensor products = grads[0].to(torch::kFloat) * x;
      dweight = accumulate_grad(weight, products.flatten(0, -3).sum(0));
    }
    return {grads[0] * weight, dweight};
  }
};

// SplitRmsNorm is RMS norm of x, of whose last dimension each rank has a part. Inputs are x and
// this rank's part of the weight.
class SplitRmsNorm final : public CustomFunction {
 public:
  SplitRmsNorm(const NormSpec& spec, int64_t full_size, int num_replicas, TensorParallelPtr tp)
      : eps_(spec.eps),
        product_in_fp32_(spec.product_in_fp32),
        full_size_(static_cast<double>(full_size)),
        num_replicas_(num_replicas),
        tp_(std::move(tp)) {}

  TensorVector forward(const FunctionContext& context, const TensorVector& inputs) override {
    const Tensor &x = inputs[0], &weight = inputs[1];
    const Tensor wide = x.to(torch::kFloat);
    const Tensor scale = mean(wide.square(), "squares of heads").add_(eps_).rsqrt_();
    context.save_for_backward({x, weight, scale});
    const Tensor normalized = wide * scale;
    if (product_in_fp32_) return {(normalized * weight).to(x.scalar_type())};
    return {normalized.to(x.scalar_type()) * weight};
  }

  // The formula is that of rms_norm_backward(). dy is this rank's addend where several ranks have
  // the same part, and so is what becomes of it.
  TensorVector backward(const FunctionContext& context, TensorVector grads) const override {
    const TensorVector saved = context.saved();
    const Tensor &x = saved[0], &weight = saved[1], &scale = saved[2];
    const Tensor wide_x = x.to(torch::kFloat), dy = grads[0].to(torch::kFloat);
    Tensor dweight;
    if (context.needs_input_grad(1)) {
      const Tensor products = dy * wide_x * scale;
      dweight = accumulate_grad(weight, products.flatten(0, -2).sum(0));
    }
    const Tensor scaled = dy * weight.to(torch::kFloat);
    // The mean of the addends' sum, of which each rank that has this part subtracts its share.
    const Tensor along =
        mean(scaled * wide_x * num_replicas_, "gradients of heads") / num_replicas_;
    return {(scaled * scale - wide_x * (along * scale.pow(3))).to(x.scalar_type()), dweight};
  }

 private:
  // Returns the mean over the last dimension of all ranks, [..., 1].
  Tensor mean(const Tensor& part, const char* what) const {
    const Tensor sum = part.sum(-1, /*keepdim=*/true);
    tp_->all_reduce(sum, comm::ReduceOp::kSum, what);
    return sum / (full_size_ * num_replicas_);
  }

  double eps_;
  bool product_in_fp32_;
  double full_size_;
  int num_replicas_;
  TensorParallelPtr tp_;
};

}  // namespace

Norm::Norm(const NormSpec& spec, int64_t size, int64_t heads) : spec_(spec), size_(size) {
  ZEROTH_CHECK(heads == 0 || !spec.bias, "norms of heads with weights of their own have no bias");
  ZEROTH_CHECK(spec.weight || !spec.bias, "a norm has a bias without a weight");
  if (spec.weight) {
    weight_ = register_parameter(
        "weight", heads > 0 ? meta_parameter({heads, size}) : meta_parameter({size}));
  }
  if (spec.bias) bias_ = register_parameter("bias", meta_parameter({size}));
}

Tensor Norm::forward(const Tensor& x) const {
  if (!has_weight_per_head()) return normalize(x, weight_, std::nullopt).norm;
  const Tensor plain = normalize(x, {}, std::nullopt).norm;
  return apply_function(std::make_shared<ScaleHeads>(), {plain, weight_})[0];
}

Norm::Residual Norm::forward_residual(const Tensor& x, const std::optional<Tensor>& addend) const {
  ZEROTH_CHECK(!has_weight_per_head(), "a residual stream has no heads");
  return normalize(x, weight_, addend);
}

Norm::Residual Norm::normalize(const Tensor& x, const Tensor& weight,
                               const std::optional<Tensor>& addend) const {
  if (spec_.kind == NormKind::kRms) {
    const Tensor factor = weight.defined() ? weight : at::ones({size_}, x.options());
    const TensorVector both =
        apply_function(std::make_shared<RmsNorm>(spec_),
                       addend ? TensorVector{x, *addend, factor} : TensorVector{x, factor});
    return {both[0], both[1]};
  }
  const Tensor stream = addend ? x + *addend : x;
  TensorVector inputs = {stream};
  if (weight.defined()) inputs.push_back(weight);
  if (bias_.defined()) inputs.push_back(bias_);
  return {stream, apply_function(std::make_shared<LayerNorm>(size_, spec_.eps, spec_.weight_offset),
                                 inputs)[0]};
}

SplitNorm::SplitNorm(const NormSpec& spec, const Shard& shard, TensorParallelPtr tp)
    : spec_(spec), shard_(shard), tp_(std::move(tp)) {
  weight_ = register_parameter("weight", meta_parameter({shard.extent}));
}

Tensor SplitNorm::forward(const Tensor& x) const {
  return apply_function(
      std::make_shared<SplitRmsNorm>(spec_, shard_.full_size, shard_.num_replicas, tp_),
      {x, weight_})[0];
}

}  // namespace zeroth::model
