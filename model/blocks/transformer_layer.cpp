#include "model/blocks/transformer_layer.h"

#include <fmt/format.h>

#include <utility>

#include "model/blocks/delta_net.h"
#include "model/blocks/short_conv.h"

namespace zeroth::model {

using torch::Tensor;

namespace {

std::shared_ptr<Mixer> make_mixer(const ModelSpec& spec, int64_t layer, const std::string& label,
                                  std::shared_ptr<SequenceTables> tables,
                                  const TensorParallelPtr& tp) {
  switch (spec.layer(layer).mixer) {
    case LayerMixer::kAttention:
      break;
    case LayerMixer::kDeltaNet:
      return std::make_shared<DeltaNet>(spec, std::move(tables), tp);
    case LayerMixer::kShortConv:
      return std::make_shared<ShortConv>(spec, std::move(tables), tp);
  }
  return std::make_shared<Attention>(
      spec, layer, std::move(tables),
      make_dropout_site(spec.attention_dropout, label + ".attention.probabilities"), tp);
}

}  // namespace

TransformerLayer::TransformerLayer(const ModelSpec& spec, int64_t index,
                                   std::shared_ptr<SequenceTables> tables,
                                   const TensorParallelPtr& tp)
    : Block(fmt::format("layers.{}", index)),
      tp_(tp),
      residual_multiplier_(spec.residual_multiplier),
      parallel_residual_(spec.parallel_residual != ParallelResidual::kNone),
      attention_dropout_(make_dropout_site(spec.residual_dropout, label() + ".attention")),
      mlp_dropout_(make_dropout_site(spec.residual_dropout, label() + ".mlp")),
      mixer_name_(mixer_module(spec.layer(index).mixer)) {
  const auto norm = [&](const char* name) {
    return register_module(name, std::make_shared<Norm>(spec.norm, spec.hidden_size));
  };
  const bool before = spec.norm_placement != NormPlacement::kPost;
  const bool after = spec.norm_placement != NormPlacement::kPre;
  if (before) attention_norm_ = norm("attention_norm");
  mixer_ = register_module(mixer_name_, make_mixer(spec, index, label(), std::move(tables), tp));
  if (after) attention_post_norm_ = norm("attention_post_norm");
  if (before && spec.parallel_residual != ParallelResidual::kOneNorm) mlp_norm_ = norm("mlp_norm");
  if (spec.layer(index).experts) {
    experts_ = register_module("mlp", std::make_shared<Experts>(spec, label(), tp));
  } else {
    mlp_ = register_module("mlp", std::make_shared<Mlp>(spec, spec.mlp_size(index), tp));
  }
  if (after) mlp_post_norm_ = norm("mlp_post_norm");
}

Tensor TransformerLayer::addend(const Tensor& y, const std::shared_ptr<Norm>& norm,
                                const DropoutSite& site, const MicroBatch& batch) const {
  const int64_t first = tp_ ? sequence_shard(batch.tokens.numel(), *tp_).first : 0;
  const Tensor kept = dropout(norm ? norm->forward(y) : y, site, batch, first);
  return residual_multiplier_ == 1 ? kept : kept * residual_multiplier_;
}

Tensor TransformerLayer::feed_forward(const Tensor& x, const MicroBatch& batch) const {
  return experts_ ? experts_->forward(x, batch) : mlp_->forward(x, batch);
}

Tensor TransformerLayer::forward(const Tensor& x, const MicroBatch& batch) {
  if (parallel_residual_) return forward_parallel(x, batch);
  const Norm::Residual before =
      attention_norm_ ? attention_norm_->forward_residual(x) : Norm::Residual{x, x};
  const Tensor attended =
      addend(mixer_->forward(before.norm, batch), attention_post_norm_, attention_dropout_, batch);
  Norm::Residual after;
  if (mlp_norm_) {
    after = mlp_norm_->forward_residual(before.stream, attended);
  } else {
    after.stream = after.norm = before.stream + attended;
  }
  return after.stream +
         addend(feed_forward(after.norm, batch), mlp_post_norm_, mlp_dropout_, batch);
}

Tensor TransformerLayer::forward_parallel(const Tensor& x, const MicroBatch& batch) {
  const Norm::Residual before = attention_norm_->forward_residual(x);
  const Tensor mlp_input = mlp_norm_ ? mlp_norm_->forward(before.stream) : before.norm;
  const Tensor attended =
      addend(mixer_->forward(before.norm, batch), nullptr, attention_dropout_, batch);
  // The stream comes last: it is the largest, and rounds most.
  return attended + addend(feed_forward(mlp_input, batch), nullptr, mlp_dropout_, batch) +
         before.stream;
}

}  // namespace zeroth::model
