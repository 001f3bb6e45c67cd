#include "model/blocks/mlp.h"

#include <ATen/ops/gelu.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/square.h>

#include <utility>

#include "model/custom_function.h"
#include "model/kernels/fused.h"

namespace zeroth::model {
namespace {

using torch::Tensor;

Tensor activate(const Tensor& x, Activation activation) {
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
  }
  return {};
}

// The backward of SwiGlu recomputes silu(gate).
struct SwiGlu final : CustomFunction {
  TensorVector forward(const FunctionContext& context, const TensorVector& inputs) override {
    context.save_for_backward(inputs);
    return {swiglu(inputs[0], inputs[1])};
  }

  TensorVector backward(const FunctionContext& context, TensorVector grads) const override {
    const TensorVector saved = context.saved();
    auto [dgate, dup] = swiglu_backward(grads[0], saved[0], saved[1]);
    return {dgate, dup};
  }
};

}  // namespace

Tensor gate_by_silu(const Tensor& gate, const Tensor& up) {
  return apply_function(std::make_shared<SwiGlu>(), {gate, up})[0];
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
  down_ = projection("down", size, hidden, ParallelStyle::kRowwise);
}

Tensor Mlp::forward(const Tensor& x, const MicroBatch& batch) const {
  const auto down = [&](const Tensor& inner) { return linear(inner, *down_, batch); };
  if (!gate_ && !gate_up_) return down(activate(linear(x, *up_, batch), activation_));
  const std::vector<Tensor> y = gate_up_ ? linear(x, *gate_up_, batch).chunk(2, -1)
                                         : linear(x, {gate_.get(), up_.get()}, batch);
  if (activation_ == Activation::kSilu) return down(gate_by_silu(y[0], y[1]));
  return down(activate(y[0], activation_) * y[1]);
}

}  // namespace zeroth::model
