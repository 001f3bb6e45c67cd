#include "model/blocks/norm.h"

#include <ATen/ops/native_layer_norm.h>
#include <ATen/ops/native_layer_norm_backward.h>

#include <tuple>

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
  explicit RmsNorm(double eps) : eps_(eps) {}

  TensorVector forward(const FunctionContext& context, const TensorVector& inputs) override {
    context.keep_undefined_grads();
    const Tensor &x = inputs.front(), &weight = inputs.back();
    Tensor sum = x, y, scale;
    adds_ = inputs.size() == 3;
    if (adds_) {
      std::tie(sum, y, scale) = add_rms_norm(x, inputs[1], weight, eps_);
    } else {
      std::tie(y, scale) = rms_norm(x, weight, eps_);
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
      std::tie(dsum, dweight) =
          rms_norm_backward(grads[1], saved[0], saved[1], saved[2], residual, output_mask);
      if (dweight.defined()) dweight = accumulate_grad(saved[1], dweight);
    }
    return adds_ ? TensorVector{dsum, dsum, dweight} : TensorVector{dsum, dweight};
  }

 private:
  double eps_;
  bool adds_ = false;
};

// Widens 16-bit tensors on a CPU. There torch's LayerNorm sums the gradients of weight and bias
// over the rows in the dtype of x, where a sum in 16 bits soon stops growing, and keeps the rows'
// means in the dtype of the weight.
Tensor wide_on_cpu(const Tensor& tensor) {
  const bool is_16_bit = at::isReducedFloatingType(tensor.scalar_type());
  return tensor.is_cpu() && is_16_bit ? tensor.to(torch::kFloat) : tensor;
}

// LayerNorm returns the norm of x. Inputs are x, weight and bias.
class LayerNorm final : public CustomFunction {
 public:
  explicit LayerNorm(double eps) : eps_(eps) {}

  TensorVector forward(const FunctionContext& context, const TensorVector& inputs) override {
    const Tensor &x = inputs[0], &weight = inputs[1], &bias = inputs[2];
    auto [y, mean, scale] =
        at::native_layer_norm(x, weight.sizes(), wide_on_cpu(weight), wide_on_cpu(bias), eps_);
    context.save_for_backward({x, weight, bias, mean, scale});
    return {y};
  }

  TensorVector backward(const FunctionContext& context, TensorVector grads) const override {
    const TensorVector saved = context.saved();
    const Tensor& weight = saved[1];
    const Tensor& bias = saved[2];
    const std::array<bool, 3> output_mask = {
        context.needs_input_grad(0), context.needs_input_grad(1), context.needs_input_grad(2)};
    auto [dx, dweight, dbias] = at::native_layer_norm_backward(
        wide_on_cpu(grads[0]).contiguous(), wide_on_cpu(saved[0]), weight.sizes(), saved[3],
        saved[4], wide_on_cpu(weight), wide_on_cpu(bias), output_mask);
    if (dx.defined()) dx = dx.to(saved[0].scalar_type());
    if (dweight.defined()) dweight = accumulate_grad(weight, dweight);
    if (dbias.defined()) dbias = accumulate_grad(bias, dbias);
    return {dx, dweight, dbias};
  }

 private:
  double eps_;
};

}  // namespace

Norm::Norm(NormKind kind, int64_t size, double eps) : kind_(kind), eps_(eps) {
  weight_ = register_parameter("weight", meta_parameter({size}));
  if (kind == NormKind::kLayer) bias_ = register_parameter("bias", meta_parameter({size}));
}

Tensor Norm::forward(const Tensor& x) const {
  if (kind_ == NormKind::kRms) return forward_residual(x).norm;
  return apply_function(std::make_shared<LayerNorm>(eps_), {x, weight_, bias_})[0];
}

Norm::Residual Norm::forward_residual(const Tensor& x, const std::optional<Tensor>& addend) const {
  if (kind_ == NormKind::kRms) {
    const TensorVector both =
        apply_function(std::make_shared<RmsNorm>(eps_),
                       addend ? TensorVector{x, *addend, weight_} : TensorVector{x, weight_});
    return {both[0], both[1]};
  }
  const Tensor stream = addend ? x + *addend : x;
  return {stream, forward(stream)};
}

}  // namespace zeroth::model
