#include "model/blocks/attention.h"

#include <limits>
#include <utility>

#include "model/kernels/cpu_attention.h"
#include "model/kernels/dropped_attention.h"
#include "model/kernels/product.h"

namespace zeroth::model {

using torch::Tensor;

const Tensor& WindowMask::get(int64_t seq, const Tensor& like) {
  const bool fits = cached_.defined() && cached_.size(0) == seq &&
                    cached_.scalar_type() == like.scalar_type() &&
                    cached_.device() == like.device();
  if (!fits) {
    const torch::NoGradGuard no_grad;
    Tensor seen = torch::ones({seq, seq}, like.options().dtype(torch::kBool)).tril_();
    if (window_ > 0) seen.triu_(1 - window_);
    cached_ = torch::zeros({seq, seq}, like.options())
                  .masked_fill_(seen.logical_not(), -std::numeric_limits<double>::infinity());
  }
  return cached_;
}

Attention::Attention(const ModelSpec& spec, int64_t layer, std::shared_ptr<SequenceTables> tables,
                     const DropSite& drop)
    : num_heads_(spec.num_heads),
      head_dim_(spec.head_dim),
      window_(spec.layer_window(layer)),
      scale_(spec.score_scale(layer)),
      rotary_(!spec.learned_positions),
      drop_(drop),
      tables_(std::move(tables)) {
  const int64_t q_size = spec.num_heads * spec.head_dim;
  const int64_t kv_size = spec.num_kv_heads * spec.head_dim;
  const WeightLayout layout = spec.conv1d ? WeightLayout::kInOut : WeightLayout::kOutIn;
  const auto projection = [&](const char* name, int64_t in, int64_t out, bool bias) {
    return register_module(name, std::make_shared<Linear>(LinearShape{in, out, bias, layout}));
  };
  if (spec.conv1d) {
    qkv_ = projection("qkv", spec.hidden_size, q_size + 2 * kv_size, spec.qkv_bias);
  } else {
    q_ = projection("q", spec.hidden_size, q_size, spec.qkv_bias);
    k_ = projection("k", spec.hidden_size, kv_size, spec.qkv_bias);
    v_ = projection("v", spec.hidden_size, kv_size, spec.qkv_bias);
  }
  if (spec.qk_norm) {
    q_norm_ = register_module("q_norm",
                              std::make_shared<Norm>(NormKind::kRms, spec.head_dim, spec.norm_eps));
    k_norm_ = register_module("k_norm",
                              std::make_shared<Norm>(NormKind::kRms, spec.head_dim, spec.norm_eps));
  }
  o_ = projection("o", q_size, spec.hidden_size, spec.o_bias);
}

Attention::Heads Attention::project(const Tensor& x) const {
  const auto heads = [&](const Tensor& y) { return y.view({x.size(0), x.size(1), -1, head_dim_}); };
  if (!qkv_) {
    const std::vector<Tensor> y = linear(x, *q_, *k_, *v_);
    return {heads(y[0]), heads(y[1]), heads(y[2])};
  }
  const Tensor y = heads(linear(x, *qkv_));
  const int64_t num_kv_heads = (y.size(2) - num_heads_) / 2;
  const std::vector<Tensor> parts = y.split_with_sizes({num_heads_, num_kv_heads, num_kv_heads}, 2);
  return {parts[0], parts[1], parts[2]};
}

Attention::Heads Attention::Heads::widened() const {
  return {q.to(torch::kFloat), k.to(torch::kFloat), v.to(torch::kFloat)};
}

Tensor Attention::attend(const Heads& heads) {
  if (cpu_attention_takes(heads.q)) {
    return cpu_attention(heads.q, heads.k, heads.v, {.scale = scale_, .window = window_})
        .flatten(2);
  }
  if (widens(heads.q)) return attend(heads.widened()).to(heads.q.scalar_type());
  const int64_t seq = heads.q.size(1);
  std::optional<Tensor> mask;
  if (window_ > 0 && seq > window_) mask = tables_->window.get(seq, heads.q);
  const int64_t sharing = num_heads_ / heads.k.size(2);
  // On a GPU only the kernels for 16-bit inputs without a mask share keys. The one for the rest
  // does not; asked to, LibTorch takes the formula, whose scores fill [heads, seq, seq].
  const bool copies =
      sharing > 1 && heads.q.is_cuda() && (mask || heads.q.scalar_type() == torch::kFloat);
  const auto keys = [&](const Tensor& x) {
    return (copies ? x.repeat_interleave(sharing, 2) : x).transpose(1, 2);
  };
  const Tensor y = at::scaled_dot_product_attention(
      heads.q.transpose(1, 2), keys(heads.k), keys(heads.v), mask, /*dropout_p=*/0.0,
      /*is_causal=*/!mask.has_value(), scale_, /*enable_gqa=*/sharing > 1 && !copies);
  return y.transpose(1, 2).flatten(2);
}

Tensor Attention::attend_dropping(const Heads& heads, const MicroBatch& batch) {
  if (widens(heads.q)) {
    return attend_dropping(heads.widened(), batch).to(heads.q.scalar_type());
  }
  WindowMask& mask = window_ > 0 ? tables_->window : tables_->causal;
  return dropped_attention(heads.q, heads.k, heads.v, mask.get(heads.q.size(1), heads.q),
                           {.scale = scale_, .site = drop_, .row_seeds = batch.row_seeds})
      .flatten(2);
}

Tensor Attention::forward(const Tensor& x, const MicroBatch& batch) {
  Heads heads = project(x);
  if (q_norm_) {
    heads.q = q_norm_->forward(heads.q);
    heads.k = k_norm_->forward(heads.k);
  }
  if (rotary_) {
    const RopeTable::Angles& angles = batch.positions.defined()
                                          ? tables_->rope.at(batch.positions, x)
                                          : tables_->rope.sequence(x.size(1), x);
    heads.q = rotate(heads.q, angles);
    heads.k = rotate(heads.k, angles);
  }
  return linear(drops(drop_, batch) ? attend_dropping(heads, batch) : attend(heads), *o_);
}

}  // namespace zeroth::model
