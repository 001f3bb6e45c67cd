#include "model/blocks/transformer_layer.h"

#include <ATen/ops/gelu.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/square.h>
#include <fmt/format.h>

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

// SwiGlu computes silu(gate) * up and keeps only its inputs: the backward recomputes silu(gate).
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

TransformerLayer::TransformerLayer(const ModelSpec& spec, int64_t index,
                                   std::shared_ptr<SequenceTables> tables,
                                   const TensorParallelPtr& tp)
    : Block(fmt::format("layers.{}", index)),
      tp_(tp),
      residual_multiplier_(spec.residual_multiplier),
      attention_dropout_(make_dropout_site(spec.residual_dropout, label() + ".attention")),
      mlp_dropout_(make_dropout_site(spec.residual_dropout, label() + ".mlp")) {
  const auto norm = [&] {
    return std::make_shared<Norm>(spec.norm, spec.hidden_size, spec.norm_eps);
  };
  attention_norm_ = register_module("attention_norm", norm());
  attention_ = register_module(
      "attention",
      std::make_shared<Attention>(
          spec, index, std::move(tables),
          make_dropout_site(spec.attention_dropout, label() + ".attention.probabilities"), tp));
  mlp_norm_ = register_module("mlp_norm", norm());
  mlp_ = register_module("mlp", std::make_shared<Mlp>(spec, tp));
}

torch::Tensor TransformerLayer::forward(const torch::Tensor& x, const MicroBatch& batch) {
  const int64_t first = tp_ ? sequence_shard(batch.tokens.numel(), *tp_).first : 0;
  const Norm::Residual before = attention_norm_->forward_residual(x);
  const auto addend = [&](const Tensor& y, const DropoutSite& site) {
    const Tensor kept = dropout(y, site, batch, first);
    return residual_multiplier_ == 1 ? kept : kept * residual_multiplier_;
  };
  const Tensor attended = addend(attention_->forward(before.norm, batch), attention_dropout_);
  const Norm::Residual after = mlp_norm_->forward_residual(before.stream, attended);
  return after.stream + addend(mlp_->forward(after.norm, batch), mlp_dropout_);
}

Mlp::Mlp(const ModelSpec& spec, const TensorParallelPtr& tp) : activation_(spec.activation) {
  const WeightLayout layout = spec.conv1d ? WeightLayout::kInOut : WeightLayout::kOutIn;
  const int64_t hidden = spec.hidden_size, full_size = spec.intermediate_size;
  const int64_t local_size = full_size / tp_size(tp);
  const auto projection = [&](const char* name, int64_t in, int64_t out, ParallelStyle style) {
    LinearShape shape{in, out, spec.mlp_bias, layout, {}, tp, spec.quantization};
    if (tp) shape.shard = {style, tp->rank() * local_size, local_size, full_size};
    return register_module(name, std::make_shared<Linear>(shape));
  };
  if (spec.gated_mlp) gate_ = projection("gate", hidden, full_size, ParallelStyle::kColwise);
  up_ = projection("up", hidden, full_size, ParallelStyle::kColwise);
  down_ = projection("down", full_size, hidden, ParallelStyle::kRowwise);
}

Tensor Mlp::forward(const Tensor& x, const MicroBatch& batch) const {
  const auto down = [&](const Tensor& inner) { return linear(inner, *down_, batch); };
  if (!gate_) return down(activate(linear(x, *up_, batch), activation_));
  const std::vector<Tensor> y = linear(x, {gate_.get(), up_.get()}, batch);
  if (activation_ == Activation::kSilu)
    return down(apply_function(std::make_shared<SwiGlu>(), y)[0]);
  return down(activate(y[0], activation_) * y[1]);
}

}  // namespace zeroth::model
