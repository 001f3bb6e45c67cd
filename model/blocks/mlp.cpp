#include "model/blocks/mlp.h"

#include <ATen/ops/expm1.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/minimum.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/softplus.h>
#include <ATen/ops/square.h>
#include <ATen/ops/where.h>

#include <utility>

#include "model/blocks/main_grad.h"
#include "model/custom_function.h"
#include "model/kernels/fused.h"

namespace zeroth::model {
namespace {

using torch::Tensor;

// Returns the activation, which has no parameters, of x.
Tensor apply_activation(const Tensor& x, Activation activation) {
  switch (activation) {
    case Activation::kSilu:
      return at::silu(x);
    case Activation::kGelu:
      return at::gelu(x);
    case Activation::kGeluTanh:
      return at::gelu(x, "tanh");
    case Activation::kRelu:
      return at::relu(x);
    case Activation::kReluSquared:
      return at::square(at::relu(x));
    case Activation::kXielu:
      break;  // has parameters
  }
  return {};
}

// The backward of GatedActivation recomputes the activation of the gate.
class GatedActivation final : public CustomFunction {
 public:
  explicit GatedActivation(bool gelu_tanh) : gelu_tanh_(gelu_tanh) {}

  TensorVector forward(const FunctionContext& context, const TensorVector& inputs) override {
    context.save_for_backward(inputs);
    return {gated_activation(inputs[0], inputs[1], gelu_tanh_)};
  }

  TensorVector backward(const FunctionContext& context, TensorVector grads) const override {
    const TensorVector saved = context.saved();
    auto [dgate, dup] = gated_activation_backward(grads[0], saved[0], saved[1], gelu_tanh_);
    return {dgate, dup};
  }

 private:
  bool gelu_tanh_;
};

// XieluFunction maps x to a x^2 + beta x above 0, and elsewhere to b (exp(min(x, eps)) - 1 - x) +
// beta x, where a = softplus(alpha_p) and b = beta + softplus(alpha_n). Inputs are x, alpha_p,
// alpha_n, beta and eps, which alone are kept.
struct XieluFunction final : CustomFunction {
  TensorVector forward(const FunctionContext& context, const TensorVector& inputs) override {
    context.save_for_backward(inputs);
    const Values v(inputs);
    const Tensor y = at::where(v.above, v.x.square() * v.a, v.below() * v.b).add_(v.x * v.beta);
    return {y.to(inputs[0].scalar_type())};
  }

  TensorVector backward(const FunctionContext& context, TensorVector grads) const override {
    const TensorVector saved = context.saved();
    const Values v(saved);
    const Tensor dy = grads[0].to(torch::kFloat);
    const Tensor slope = at::where(v.x < v.eps, v.x.exp(), 0).sub_(1).mul_(v.b);
    const Tensor dx = at::where(v.above, v.x * (2 * v.a), slope).add_(v.beta).mul_(dy);
    // The sum over the elements of one side, times softplus' slope.
    const auto factor = [&](size_t input, const Tensor& terms, const Tensor& side) {
      if (!context.needs_input_grad(input)) return Tensor();
      const Tensor sum = at::where(side, terms * dy, 0).sum().view({1});
      return accumulate_grad(saved[input], sum * saved[input].to(torch::kFloat).sigmoid());
    };
    return {dx.to(saved[0].scalar_type()), factor(1, v.x.square(), v.above),
            factor(2, v.below(), v.above.logical_not()), Tensor(), Tensor()};
  }

 private:
  // The inputs in fp32, and what is derived from them.
  struct Values {
    explicit Values(const TensorVector& inputs)
        : x(inputs[0].to(torch::kFloat)),
          beta(inputs[3].to(torch::kFloat)),
          eps(inputs[4].to(torch::kFloat)),
          a(at::softplus(inputs[1].to(torch::kFloat))),
          b(at::softplus(inputs[2].to(torch::kFloat)) + beta),
          above(x > 0) {}

    Tensor below() const { return at::minimum(x, eps).expm1_().sub_(x); }

    Tensor x, beta, eps, a, b, above;
  };
};

}  // namespace

bool is_fused(Activation activation) {
  return activation == Activation::kSilu || activation == Activation::kGeluTanh;
}

Tensor gate_by(Activation activation, const Tensor& gate, const Tensor& up) {
  if (!is_fused(activation)) return apply_activation(gate, activation) * up;
  const bool gelu_tanh = activation == Activation::kGeluTanh;
  return apply_function(std::make_shared<GatedActivation>(gelu_tanh), {gate, up})[0];
}

Xielu::Xielu() {
  alpha_p_ = register_parameter("alpha_p", meta_parameter({1}));
  alpha_n_ = register_parameter("alpha_n", meta_parameter({1}));
  beta_ = register_parameter("beta", meta_parameter({}), /*requires_grad=*/false);
  eps_ = register_parameter("eps", meta_parameter({}), /*requires_grad=*/false);
}

Tensor Xielu::forward(const Tensor& x) const {
  return apply_function(std::make_shared<XieluFunction>(), {x, alpha_p_, alpha_n_, beta_, eps_})[0];
}

Mlp::Mlp(const ModelSpec& spec, int64_t size, const TensorParallelPtr& tp)
    : activation_(spec.activation) {
  const WeightLayout layout = spec.conv1d ? WeightLayout::kInOut : WeightLayout::kOutIn;
  const int64_t hidden = spec.hidden_size, local_size = size / tp_size(tp);
  // `before` rows of the product that files hold come before those of this one.
  const auto projection = [&](const char* name, int64_t in, int64_t out, ParallelStyle style,
                              int64_t before = 0, const char* product = "") {
    LinearShape shape{in, out, spec.mlp_bias, layout, {}, tp, spec.quantization};
    if (tp) {
      shape.shard = {.style = style,
                     .begin = before + tp->rank() * local_size,
                     .extent = local_size,
                     .full_size = *product == 0 ? size : 2 * size,
                     .product = product};
    }
    return register_module(name, std::make_shared<Linear>(shape));
  };
  if (spec.gated_mlp && spec.fused_gate_up && !tp) {
    gate_up_ = projection("gate_up", hidden, 2 * size, ParallelStyle::kNone);
  } else if (spec.gated_mlp) {
    const char* const product = spec.fused_gate_up ? "gate_up" : "";
    gate_ = projection("gate", hidden, size, ParallelStyle::kColwise, 0, product);
    up_ = projection("up", hidden, size, ParallelStyle::kColwise, spec.fused_gate_up ? size : 0,
                     product);
  } else {
    up_ = projection("up", hidden, size, ParallelStyle::kColwise);
  }
  if (activation_ == Activation::kXielu)
    xielu_ = register_module("activation", std::make_shared<Xielu>());
  down_ = projection("down", size, hidden, ParallelStyle::kRowwise);
}

Tensor Mlp::activate(const Tensor& x) const {
  return xielu_ ? xielu_->forward(x) : apply_activation(x, activation_);
}

Tensor Mlp::inner(const Tensor& x, const MicroBatch& batch) const {
  if (!gate_ && !gate_up_) return activate(linear(x, *up_, batch));
  const std::vector<Tensor> y = gate_up_ ? linear(x, *gate_up_, batch).chunk(2, -1)
                                         : linear(x, {gate_.get(), up_.get()}, batch);
  if (xielu_) return xielu_->forward(y[0]) * y[1];
  return gate_by(activation_, y[0], y[1]);
}

}  // namespace zeroth::model
