#include "model/blocks/transformer_layer.h"

#include <ATen/ops/cat.h>
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "model/blocks/delta_net.h"
#include "model/blocks/main_grad.h"
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
      index_(index),
      layer_(spec.layer(index)),
      head_dim_(spec.layer_head_dim(index)),
      carried_(carried_states(spec, index)),
      carried_out_(carried_states(spec, index + 1)),
      input_sizes_(input_sizes(spec, index, tp_size(tp))),
      residual_multiplier_(spec.residual_multiplier),
      parallel_residual_(spec.parallel_residual != ParallelResidual::kNone),
      attention_dropout_(make_dropout_site(spec.residual_dropout, label() + ".attention")),
      mlp_dropout_(make_dropout_site(spec.residual_dropout, label() + ".mlp")),
      mixer_name_(mixer_module(layer_.mixer)),
      experts_name_(spec.experts && spec.experts->beside_mlp ? "experts" : "mlp"),
      activation_(spec.activation) {
  const auto norm = [&](const char* name) {
    return register_module(name, std::make_shared<Norm>(spec.norm, spec.hidden_size));
  };
  const bool before = spec.norm_placement != NormPlacement::kPost;
  const bool after = spec.norm_placement != NormPlacement::kPre;
  if (before) attention_norm_ = norm("attention_norm");
  mixer_ = register_module(mixer_name_, make_mixer(spec, index, label(), std::move(tables), tp));
  if (after) attention_post_norm_ = norm("attention_post_norm");
  if (before && spec.parallel_residual != ParallelResidual::kOneNorm) mlp_norm_ = norm("mlp_norm");
  const auto& passed_on = carried_out_.kv_layers;
  if (layer_.kv_layer || std::ranges::find(passed_on, index) != passed_on.end())
    attention_ = std::dynamic_pointer_cast<Attention>(mixer_);
  if (spec.has_mlp(index))
    mlp_ = register_module("mlp", std::make_shared<Mlp>(spec, spec.mlp_size(index), tp));
  if (layer_.experts)
    experts_ = register_module(experts_name_, std::make_shared<Experts>(spec, label(), tp));
  if (mlp_ && experts_) {
    mlp_branch_norm_ = norm("mlp_branch_norm");
    experts_norm_ = norm("experts_norm");
    experts_post_norm_ = norm("experts_post_norm");
  }
  if (after) mlp_post_norm_ = norm("mlp_post_norm");
  if (spec.per_layer_input) {
    const auto product = [&](const char* name, int64_t in, int64_t out) {
      return register_module(
          name, std::make_shared<Linear>(LinearShape{
                    .in = in, .out = out, .tp = tp, .quantization = spec.quantization}));
    };
    const int64_t hidden = spec.hidden_size, size = spec.per_layer_input->size;
    per_layer_gate_ = product("per_layer_gate", hidden, size);
    per_layer_projection_ = product("per_layer_projection", size, hidden);
    per_layer_norm_ = norm("per_layer_norm");
  }
  if (spec.layer_scalar)
    layer_scalar_ =
        register_parameter("layer_scalar", meta_parameter({1}), /*requires_grad=*/false);
}

Tensor TransformerLayer::addend(const Tensor& y, const std::shared_ptr<Norm>& norm,
                                const DropoutSite& site, const MicroBatch& batch) const {
  const int64_t first = tp_ ? sequence_shard(batch.tokens.numel(), *tp_).first : 0;
  const Tensor kept = dropout(norm ? norm->forward(y) : y, site, batch, first);
  return residual_multiplier_ == 1 ? kept : kept * residual_multiplier_;
}

Tensor TransformerLayer::feed_forward(const Tensor& x, const Tensor& stream,
                                      const MicroBatch& batch) const {
  if (!experts_) return mlp_->forward(x, batch);
  if (!mlp_) return experts_->forward(x, x, batch);
  const Tensor expert = experts_->forward(experts_norm_->forward(stream), stream, batch);
  return mlp_branch_norm_->forward(mlp_->forward(x, batch)) + experts_post_norm_->forward(expert);
}

Tensor TransformerLayer::pack(const KeysValues& kv) const {
  const Tensor both = flatten_tokens(at::cat({kv.k.flatten(2), kv.v.flatten(2)}, -1), tp_);
  // A rank has all tokens of its heads, but a shard of the rows.
  return tp_ ? both.reshape({both.size(0) / tp_->size(), -1}) : both;
}

KeysValues TransformerLayer::unpack(const Tensor& packed, const MicroBatch& batch) const {
  const Tensor both = tp_ ? packed.reshape({packed.size(0) * tp_->size(), -1}) : packed;
  const std::vector<Tensor> halves = unflatten_tokens(both, batch.tokens, tp_).chunk(2, -1);
  const auto heads = [&](const Tensor& x) { return x.unflatten(2, {-1, head_dim_}).contiguous(); };
  return {heads(halves[0]), heads(halves[1])};
}

Tensor TransformerLayer::forward(const Tensor& x, const MicroBatch& batch) {
  if (parallel_residual_) return forward_parallel(x, batch);
  const bool carries = input_sizes_.size() > 1;
  const std::vector<Tensor> parts =
      carries ? x.split_with_sizes(input_sizes_, -1) : std::vector<Tensor>{x};
  size_t next = 1;
  Tensor per_layer_input;
  std::vector<Tensor> output(1);
  if (carried_.per_layer_inputs > 0) per_layer_input = parts[next++];
  if (carried_.per_layer_inputs > 1) output.push_back(parts[next++]);
  std::map<int64_t, Tensor> packed;  // by the layer
  for (const int64_t layer : carried_.kv_layers) packed[layer] = parts[next++];
  KeysValues kv;
  if (layer_.kv_layer) kv = unpack(packed.at(*layer_.kv_layer), batch);
  output[0] = forward_hidden(parts[0].contiguous(), per_layer_input, kv, batch);
  for (const int64_t layer : carried_out_.kv_layers)
    output.push_back(layer == index_ ? pack(kv) : packed.at(layer));
  return output.size() == 1 ? output[0] : at::cat(output, -1);
}

Tensor TransformerLayer::forward_hidden(const Tensor& x, const Tensor& per_layer_input,
                                        KeysValues& kv, const MicroBatch& batch) {
  const Norm::Residual before =
      attention_norm_ ? attention_norm_->forward_residual(x) : Norm::Residual{x, x};
  const auto mix = [&](const Tensor& norm) {
    return attention_ ? attention_->mix(norm, batch, kv) : mixer_->mix(norm, batch);
  };
  const Tensor attended = addend(linear(mix(before.norm), mixer_->output(), batch),
                                 attention_post_norm_, attention_dropout_, batch);
  Norm::Residual after;
  if (mlp_norm_) {
    after = mlp_norm_->forward_residual(before.stream, attended);
  } else {
    after.stream = after.norm = before.stream + attended;
  }
  Tensor y = after.stream + addend(feed_forward(after.norm, after.stream, batch), mlp_post_norm_,
                                   mlp_dropout_, batch);
  if (per_layer_gate_) {
    const Tensor gated =
        gate_by(activation_, linear(y, *per_layer_gate_, batch), per_layer_input.contiguous());
    y = y + per_layer_norm_->forward(linear(gated, *per_layer_projection_, batch));
  }
  return layer_scalar_.defined() ? y * layer_scalar_ : y;
}

bool TransformerLayer::can_sum_halves(const MicroBatch& batch) const {
  return tp_ && !experts_ && !mixer_->output().adapter && !mlp_->down().adapter &&
         !applies_dropout(attention_dropout_, batch) && !applies_dropout(mlp_dropout_, batch);
}

Tensor TransformerLayer::forward_parallel(const Tensor& x, const MicroBatch& batch) {
  const Norm::Residual before = attention_norm_->forward_residual(x);
  const Tensor mlp_input = mlp_norm_ ? mlp_norm_->forward(before.stream) : before.norm;
  // The stream comes last: it is the largest, and rounds most.
  if (can_sum_halves(batch)) {
    const RowwiseProduct mixed{mixer_->mix(before.norm, batch), mixer_->output()};
    const RowwiseProduct inner{mlp_->inner(mlp_input, batch), mlp_->down()};
    return addend(rowwise_sum(mixed, inner), nullptr, attention_dropout_, batch) + before.stream;
  }
  const Tensor attended =
      addend(mixer_->forward(before.norm, batch), nullptr, attention_dropout_, batch);
  return attended +
         addend(feed_forward(mlp_input, mlp_input, batch), nullptr, mlp_dropout_, batch) +
         before.stream;
}

}  // namespace zeroth::model
