#include "model/blocks/transformer_layer.h"

#include <fmt/format.h>
#include <torch/csrc/autograd/custom_function.h>

#include <utility>

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

TransformerLayer::TransformerLayer(const ModelSpec& spec, int64_t index,
                                   std::shared_ptr<SequenceTables> tables,
                                   const TensorRanksPtr& ranks)
    : Block(fmt::format("layers.{}", index)),
      ranks_(ranks),
      drop_attention_(drop_site(spec.residual_dropout, label() + ".attention")),
      drop_mlp_(drop_site(spec.residual_dropout, label() + ".mlp")) {
  const auto norm = [&] {
    return std::make_shared<Norm>(spec.norm, spec.hidden_size, spec.norm_eps);
  };
  attention_norm_ = register_module("attention_norm", norm());
  attention_ = register_module(
      "attention",
      std::make_shared<Attention>(
          spec, index, std::move(tables),
          drop_site(spec.attention_dropout, label() + ".attention.probabilities"), ranks));
  mlp_norm_ = register_module("mlp_norm", norm());
  mlp_ = register_module("mlp", std::make_shared<Mlp>(spec, ranks));
}

torch::Tensor TransformerLayer::forward(const torch::Tensor& x, const MicroBatch& batch) {
  const int64_t first = ranks_ ? token_run(batch.tokens.numel(), *ranks_).first : 0;
  const Norm::Residual before = attention_norm_->forward_residual(x);
  const Tensor attended =
      dropout(attention_->forward(before.norm, batch), drop_attention_, batch, first);
  const Norm::Residual after = mlp_norm_->forward_residual(before.stream, attended);
  return after.stream + dropout(mlp_->forward(after.norm), drop_mlp_, batch, first);
}

Mlp::Mlp(const ModelSpec& spec, const TensorRanksPtr& ranks) : activation_(spec.activation) {
  const WeightLayout layout = spec.conv1d ? WeightLayout::kInOut : WeightLayout::kOutIn;
  const int64_t hidden = spec.hidden_size, all = spec.intermediate_size;
  const int64_t own = all / size_of(ranks);
  const auto projection = [&](const char* name, int64_t in, int64_t out, Side side) {
    LinearShape shape{in, out, spec.mlp_bias, layout, {}, ranks};
    if (ranks) shape.cut = {side, ranks->rank() * own, own, all};
    return register_module(name, std::make_shared<Linear>(shape));
  };
  if (spec.gated_mlp) gate_ = projection("gate", hidden, all, Side::kOut);
  up_ = projection("up", hidden, all, Side::kOut);
  down_ = projection("down", all, hidden, Side::kIn);
}

Tensor Mlp::forward(const Tensor& x) const {
  if (!gate_) return linear(activate(linear(x, *up_), activation_), *down_);
  const std::vector<Tensor> y = linear(x, *gate_, *up_);
  if (activation_ == Activation::kSilu) return linear(SwiGlu::apply(y[0], y[1]), *down_);
  return linear(activate(y[0], activation_) * y[1], *down_);
}

}  // namespace zeroth::model
