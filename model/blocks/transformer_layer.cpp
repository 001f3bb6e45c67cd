#include "model/blocks/transformer_layer.h"

#include <fmt/format.h>

#include <utility>

namespace zeroth::model {

TransformerLayer::TransformerLayer(const ModelSpec& spec, int64_t index,
                                   std::shared_ptr<SequenceTables> tables)
    : Block(fmt::format("layers.{}", index)),
      drop_attention_(drop_site(spec.residual_dropout, label() + ".attention")),
      drop_mlp_(drop_site(spec.residual_dropout, label() + ".mlp")) {
  const auto norm = [&] {
    return std::make_shared<Norm>(spec.norm, spec.hidden_size, spec.norm_eps);
  };
  attention_norm_ = register_module("attention_norm", norm());
  attention_ = register_module(
      "attention", std::make_shared<Attention>(
                       spec, spec.layer_window(index), std::move(tables),
                       drop_site(spec.attention_dropout, label() + ".attention.probabilities")));
  mlp_norm_ = register_module("mlp_norm", norm());
  mlp_ = register_module("mlp", std::make_shared<Mlp>(spec));
}

torch::Tensor TransformerLayer::forward(const torch::Tensor& x, const MicroBatch& batch) {
  const torch::Tensor y =
      x + dropout(attention_->forward(attention_norm_->forward(x), batch), drop_attention_, batch);
  return y + dropout(mlp_->forward(mlp_norm_->forward(y)), drop_mlp_, batch);
}

}  // namespace zeroth::model
