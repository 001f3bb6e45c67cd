#include "model/blocks/mlp.h"

#include <torch/csrc/autograd/custom_function.h>

#include "model/kernels/fused.h"

namespace zeroth::model {
namespace {

using torch::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

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
  }
  return {};
}

// silu(gate) * up, which keeps only its inputs: silu(gate) is computed again in the backward.
struct SwiGlu : torch::autograd::Function<SwiGlu> {
  static Tensor forward(AutogradContext* ctx, const Tensor& gate, const Tensor& up) {
    ctx->save_for_backward({gate, up});
    return swiglu(gate, up);
  }

  static variable_list backward(AutogradContext* ctx, variable_list dys) {
    const torch::NoGradGuard no_grad;
    const variable_list saved = ctx->get_saved_variables();
    auto [dgate, dup] = swiglu_backward(dys[0], saved[0], saved[1]);
    return {dgate, dup};
  }
};

}  // namespace

Mlp::Mlp(const ModelSpec& spec) : activation_(spec.activation) {
  const WeightLayout layout = spec.conv1d ? WeightLayout::kInOut : WeightLayout::kOutIn;
  const auto projection = [&](const char* name, int64_t in, int64_t out) {
    return register_module(name,
                           std::make_shared<Linear>(LinearShape{in, out, spec.mlp_bias, layout}));
  };
  if (spec.gated_mlp) gate_ = projection("gate", spec.hidden_size, spec.intermediate_size);
  up_ = projection("up", spec.hidden_size, spec.intermediate_size);
  down_ = projection("down", spec.intermediate_size, spec.hidden_size);
}

Tensor Mlp::forward(const Tensor& x) const {
  if (!gate_) return linear(activate(linear(x, *up_), activation_), *down_);
  const std::vector<Tensor> y = linear(x, *gate_, *up_);
  if (activation_ == Activation::kSilu) return linear(SwiGlu::apply(y[0], y[1]), *down_);
  return linear(activate(y[0], activation_) * y[1], *down_);
}

}  // namespace zeroth::model
