#include "model/blocks/attention.h"

#include <ATen/ops/scaled_dot_product_attention.h>

#include <utility>

#include "base/error.h"
#include "device/gpu.h"
#include "model/blocks/main_grad.h"
#include "model/kernels/matrix_product.h"

namespace zeroth::model {

using torch::Tensor;

namespace {

WeightLayout weight_layout(const ModelSpec& spec) {
  return spec.conv1d ? WeightLayout::kInOut : WeightLayout::kOutIn;
}

// Returns the compute capability of this rank's GPU, which must exist.
int gpu_capability(torch::Device device) {
  static const int capability = device::load_gpu().compute_capability(device.index());
  return capability;
}

}  // namespace

bool gpu_supports_gqa(const GpuAttention& call) {
  const bool is_16_bit = call.dtype == torch::kBFloat16 || call.dtype == torch::kHalf;
  if (call.masked || !is_16_bit || call.capability < 80) return false;
  const bool small = (call.capability >= 86 && call.capability < 90) || call.capability >= 120;
  const bool has_backward = !small || call.head_dim <= 192 || call.head_dim > 224;
  return call.head_dim <= 256 && (has_backward || !call.trains);
}

Attention::Attention(const ModelSpec& spec, int64_t layer, std::shared_ptr<SequenceTables> tables,
                     const DropoutSite& dropout, TensorParallelPtr tp)
    : tp_(std::move(tp)),
      queries_(queries(spec)),
      keys_(keys(spec.layer_kv_heads(layer))),
      head_dim_(spec.layer_head_dim(layer)),
      qkv_layout_(spec.qkv_layout),
      layer_(spec.layer(layer)),
      gated_(spec.gated_attention),
      scale_(spec.score_scale(layer)),
      softcap_(spec.score_softcap),
      clip_(spec.clip_qkv),
      normalizes_all_(spec.qk_norm == QkNorm::kAllHeads),
      norm_after_rope_(spec.qk_norm_after_rope),
      dropout_(dropout),
      tables_(std::move(tables)) {
  if (spec.learned_positions) layer_.rope = LayerRope::kNone;
  if (layer_.scales_queries) query_scale_ = spec.query_scale;
  if (spec.latent) {
    latent_ = register_module("latent", std::make_shared<LatentProjection>(spec, tp_));
  } else {
    register_inputs(spec);
    register_norms(spec);
  }
  if (spec.sinks) sinks_ = register_parameter("sinks", meta_parameter({queries_.heads}));
  if (!spec.alibi_slopes.empty()) {
    ZEROTH_CHECK(std::ssize(spec.alibi_slopes) == spec.num_heads, "{} slopes of {} heads",
                 spec.alibi_slopes.size(), spec.num_heads);
    slopes_ =
        torch::tensor(spec.alibi_slopes, torch::kFloat).narrow(0, queries_.first, queries_.heads);
  }
  const int64_t v_dim = spec.latent ? spec.latent->v_dim : head_dim_;
  const int64_t size = spec.num_heads * v_dim;
  LinearShape shape{size, spec.hidden_size, spec.o_bias, weight_layout(spec), {},
                    tp_,  spec.quantization};
  if (tp_)
    shape.shard = {ParallelStyle::kRowwise, queries_.first * v_dim, queries_.heads * v_dim, size};
  output_ = register_module("o", std::make_shared<Linear>(shape));
}

// Megatron-LM's rule: a rank has full heads, and keys and values together with their queries.
Attention::HeadRange Attention::queries(const ModelSpec& spec) const {
  const int64_t heads = spec.num_heads / tp_size(tp_);
  return {tp_ ? tp_->rank() * heads : 0, heads, spec.num_heads, 1};
}

Attention::HeadRange Attention::keys(int64_t all) const {
  const int64_t num_ranks = tp_size(tp_);
  if (!tp_) return {0, all, all, 1};
  if (all >= num_ranks) return {tp_->rank() * (all / num_ranks), all / num_ranks, all, 1};
  const int64_t num_replicas = num_ranks / all;
  return {tp_->rank() / num_replicas, 1, all, static_cast<int>(num_replicas)};
}

void Attention::register_inputs(const ModelSpec& spec) {
  const int64_t q_size = queries_.total * head_dim_, kv_size = keys_.total * head_dim_;
  const auto projection = [&](const char* name, int64_t out, const WeightShard& shard) {
    return register_module(name, std::make_shared<Linear>(LinearShape{
                                     spec.hidden_size, out, spec.qkv_bias, weight_layout(spec),
                                     shard, tp_, spec.quantization}));
  };
  const int64_t all_rows = q_size + 2 * kv_size;
  if (spec.qkv_layout == QkvLayout::kGrouped && tp_) {
    const int64_t group_rows = all_rows / keys_.total;
    qkv_ = projection(
        "qkv", all_rows,
        {ParallelStyle::kColwise, keys_.first * group_rows, keys_.heads * group_rows, all_rows});
    return;
  }
  // A single rank has one product; a rank's parts of q, k and v are not contiguous in it.
  if (spec.qkv_layout != QkvLayout::kSeparate && !tp_) {
    qkv_ = projection("qkv", all_rows, {});
    return;
  }
  const auto shard = [&](const HeadRange& part, int64_t before, int64_t out) -> WeightShard {
    if (!tp_) return {};
    const int64_t rows = spec.qkv_layout == QkvLayout::kSeparate ? out / part.total : head_dim_;
    const int64_t begin = part.first * rows, extent = part.heads * rows;
    if (spec.qkv_layout == QkvLayout::kSeparate)
      return {ParallelStyle::kColwise, begin, extent, out, part.num_replicas};
    return {ParallelStyle::kColwise, before + begin, extent, all_rows, part.num_replicas, "qkv"};
  };
  const int64_t gated_size = gated_ ? 2 * q_size : q_size;
  q_ = projection("q", gated_size, shard(queries_, 0, gated_size));
  if (layer_.kv_layer) return;
  k_ = projection("k", kv_size, shard(keys_, q_size, kv_size));
  if (!layer_.k_is_v) v_ = projection("v", kv_size, shard(keys_, q_size + kv_size, kv_size));
}

void Attention::register_norms(const ModelSpec& spec) {
  if (spec.qk_norm == QkNorm::kNone || !layer_.qk_norm) return;
  const NormSpec& norm = spec.qk_norm_spec;
  const auto add = [&](const char* name, const HeadRange& part, std::shared_ptr<Norm>& own,
                       std::shared_ptr<SplitNorm>& split) {
    if (spec.qk_norm != QkNorm::kAllHeads) {
      const bool per_head = spec.qk_norm == QkNorm::kPerHeadOwnWeight;
      own = std::make_shared<Norm>(norm, head_dim_, per_head ? part.heads : 0);
      if (norm.weight) register_module(name, own);
    } else if (tp_) {
      split =
          register_module(name, std::make_shared<SplitNorm>(
                                    norm,
                                    SplitNorm::Shard{part.first * head_dim_, part.heads * head_dim_,
                                                     part.total * head_dim_, part.num_replicas},
                                    tp_));
    } else {
      own = register_module(name, std::make_shared<Norm>(norm, part.heads * head_dim_));
    }
  };
  add("q_norm", queries_, q_norm_, split_q_norm_);
  if (layer_.kv_layer) return;
  add("k_norm", keys_, k_norm_, split_k_norm_);
  NormSpec of_values = norm;
  of_values.weight = false;
  if (spec.v_norm) v_norm_ = std::make_shared<Norm>(of_values, head_dim_);
}

Splits Attention::splits(const std::string& prefix) const {
  Splits splits;
  if (!tp_) return splits;
  const auto add = [&](const std::string& name, const HeadRange& part, int64_t row) {
    std::vector<int64_t> shape = {part.total * (row == 0 ? head_dim_ : 1)};
    std::vector<int64_t> begin = {part.first * (row == 0 ? head_dim_ : 1)};
    if (row > 0) {
      shape.push_back(row);
      begin.push_back(0);
    }
    splits[prefix + name] = {prefix + name, shape, begin, part.num_replicas};
  };
  if (split_q_norm_) {
    add("q_norm.weight", queries_, 0);
    add("k_norm.weight", keys_, 0);
  } else if (q_norm_ && q_norm_->has_weight_per_head()) {
    add("q_norm.weight", queries_, head_dim_);
    add("k_norm.weight", keys_, head_dim_);
  }
  if (sinks_.defined())
    splits[prefix + "sinks"] = {prefix + "sinks", {queries_.total}, {queries_.first}};
  return splits;
}

Attention::Heads Attention::project(const Tensor& x, const MicroBatch& batch) const {
  const auto heads = [&](const Tensor& y) {
    return unflatten_tokens(y, batch.tokens, tp_).unflatten(2, {-1, head_dim_});
  };
  if (layer_.kv_layer) return {heads(linear(x, *q_, batch)), {}, {}};
  if (layer_.k_is_v) {
    const std::vector<Tensor> y = linear(x, {q_.get(), k_.get()}, batch);
    return {heads(y[0]), heads(y[1]), heads(y[1])};
  }
  if (!qkv_) {
    const std::vector<Tensor> y = linear(x, {q_.get(), k_.get(), v_.get()}, batch);
    // Attention keeps the values: as parts of one product they would keep queries and keys too.
    Heads found{heads(y[0]), heads(y[1]), heads(y[2]).contiguous()};
    if (!gated_) return found;
    found.gate = found.q.slice(2, 1, std::nullopt, 2);
    found.q = found.q.slice(2, 0, std::nullopt, 2);
    return found;
  }
  const Tensor y = heads(linear(x, *qkv_, batch));
  if (qkv_layout_ == QkvLayout::kStacked) {
    const std::vector<Tensor> parts =
        y.split_with_sizes({queries_.heads, keys_.heads, keys_.heads}, 2);
    return {parts[0], parts[1], parts[2]};
  }
  const int64_t group_size = queries_.heads / keys_.heads;
  const std::vector<Tensor> parts =
      y.unflatten(2, {keys_.heads, group_size + 2}).split_with_sizes({group_size, 1, 1}, 3);
  return {parts[0].flatten(2, 3), parts[1].squeeze(3), parts[2].squeeze(3)};
}

Tensor Attention::attend(const Heads& heads, const MicroBatch& batch) {
  const bool in_chunks = is_in_chunks(heads.q.size(1));
  const Tensor first_keys = visible_from(heads.q.size(1), batch);
  if (cpu_attention_supports(heads.q, heads.v)) {
    return cpu_attention(heads.q, heads.k, heads.v,
                         {.scale = scale_,
                          .window = layer_.window,
                          .first_keys = first_keys,
                          .softcap = softcap_,
                          .sinks = sinks(),
                          .slopes = slopes(heads.q.device())})
        .flatten(2);
  }
  // LibTorch's kernels have none of them.
  if (softcap_ > 0 || sinks_.defined() || slopes_.defined()) return attend_by_formula(heads, batch);
  if (prefers_fp32(heads.q)) return attend(heads.widened(), batch).to(heads.q.scalar_type());
  const auto gpu_supports = [&](bool masked) {
    return gpu_supports_gqa({.dtype = heads.q.scalar_type(),
                             .head_dim = head_dim_,
                             .masked = masked,
                             .trains = heads.q.requires_grad() || heads.k.requires_grad(),
                             .capability = gpu_capability(heads.q.device())});
  };
  const bool on_gpu = heads.q.is_cuda(), packed = first_keys.defined();
  if (packed && on_gpu && head_dim_ % 8 == 0 && heads.v.size(3) == head_dim_ &&
      gpu_supports(/*masked=*/false)) {
    const CuSeqlens& samples =
        (in_chunks ? tables_->chunk_samples : tables_->samples).get(first_keys, heads.q.device());
    return varlen_attention(heads.q, heads.k, heads.v, samples, scale_, layer_.window).flatten(2);
  }
  const int64_t seq = heads.q.size(1);
  std::optional<Tensor> mask;
  const bool cut = layer_.window > 0 && seq > layer_.window;
  if (cut || packed) {
    mask = tables_->mask(cut ? layer_.window : 0).get(seq, heads.q, first_keys);
    if (mask->dim() == 3) mask = mask->unsqueeze(1);
  }
  const int64_t group_size = queries_.heads / heads.k.size(2);
  const bool repeats_kv = group_size > 1 && on_gpu && !gpu_supports(mask.has_value());
  const auto keys = [&](const Tensor& x) {
    return (repeats_kv ? x.repeat_interleave(group_size, 2) : x).transpose(1, 2);
  };
  const Tensor y = at::scaled_dot_product_attention(
      heads.q.transpose(1, 2), keys(heads.k), keys(heads.v), mask, /*dropout_p=*/0.0,
      /*is_causal=*/!mask.has_value(), scale_, /*enable_gqa=*/group_size > 1 && !repeats_kv);
  return y.transpose(1, 2).flatten(2);
}

Tensor Attention::attend_by_formula(const Heads& heads, const MicroBatch& batch) {
  if (prefers_fp32(heads.q)) {
    return attend_by_formula(heads.widened(), batch).to(heads.q.scalar_type());
  }
  const int64_t seq = heads.q.size(1);
  const Tensor first_keys = visible_from(seq, batch);
  const bool drops = applies_dropout(dropout_, batch);
  return formula_attention(heads.q, heads.k, heads.v,
                           tables_->mask(layer_.window).get(seq, heads.q, first_keys),
                           {.scale = scale_,
                            .softcap = softcap_,
                            .sinks = sinks(),
                            .slopes = slopes(heads.q.device()),
                            .site = drops ? dropout_ : DropoutSite(),
                            .samples = drops ? seeded_samples(batch) : std::vector<SeededSample>(),
                            .first_head = queries_.first,
                            .total_heads = queries_.total})
      .flatten(2);
}

Tensor Attention::visible_from(int64_t seq, const MicroBatch& batch) {
  return is_in_chunks(seq) ? tables_->chunks.get(batch, layer_.chunk) : batch.first_keys;
}

const Tensor& Attention::slopes(torch::Device device) {
  if (slopes_.defined() && slopes_.device() != device) slopes_ = slopes_.to(device);
  return slopes_;
}

Tensor Attention::sinks() const {
  return sinks_.defined() ? deliver_grad(sinks_) : Tensor();
}

void Attention::normalize_all(Heads& heads) const {
  const auto apply = [](const auto& norm, Tensor& x) {
    x = norm.forward(x.flatten(2).contiguous()).view(x.sizes());
  };
  if (split_q_norm_) {
    apply(*split_q_norm_, heads.q);
    apply(*split_k_norm_, heads.k);
  } else {
    apply(*q_norm_, heads.q);
    apply(*k_norm_, heads.k);
  }
}

void Attention::normalize_each(Heads& heads) const {
  heads.q = q_norm_->forward(heads.q.contiguous());
  if (k_norm_) heads.k = k_norm_->forward(heads.k.contiguous());
}

RopeTable::Angles Attention::angles(const MicroBatch& batch, int64_t seq, const Tensor& like) {
  RopeTable& table = layer_.rope == LayerRope::kLocal ? tables_->local_rope : tables_->rope;
  if (batch.positions.defined()) return table.at(batch.positions, like);
  return table.sequence(seq, like);
}

Tensor Attention::scale_queries(const Tensor& q, const MicroBatch& batch) const {
  const torch::NoGradGuard no_grad;
  const Tensor positions = batch.positions.defined()
                               ? batch.positions.to(q.device())
                               : torch::arange(q.size(1), q.options().dtype(torch::kLong));
  const Tensor turns =
      (positions + query_scale_->offset).div(query_scale_->interval, "floor").to(torch::kFloat);
  const Tensor factor = turns.log1p_().mul_(query_scale_->scale).add_(1).to(q.scalar_type());
  return factor.unsqueeze(-1).unsqueeze(-1);
}

Tensor Attention::mix(const Tensor& x, const MicroBatch& batch) {
  KeysValues own;
  return mix(x, batch, own);
}

Tensor Attention::mix(const Tensor& x, const MicroBatch& batch, KeysValues& kv) {
  const int64_t seq = tp_ ? batch.tokens.size(1) : x.size(1);
  if (latent_) return attend_gated(latent_->forward(x, angles(batch, seq, x), batch), batch);
  Heads heads = project(x, batch);
  if (normalizes_all_) normalize_all(heads);
  if (clip_) {
    for (Tensor* part : {&heads.q, &heads.k, &heads.v}) *part = part->clamp(-*clip_, *clip_);
  }
  if (v_norm_) heads.v = v_norm_->forward(heads.v.contiguous());
  const bool normalizes_each = q_norm_ && !normalizes_all_;
  if (normalizes_each && !norm_after_rope_) normalize_each(heads);
  if (layer_.rope != LayerRope::kNone) {
    const RopeTable::Angles turns = angles(batch, seq, x);
    heads.q = rotate(heads.q, turns);
    if (heads.k.defined()) heads.k = rotate(heads.k, turns);
  }
  if (normalizes_each && norm_after_rope_) normalize_each(heads);
  if (layer_.kv_layer) {
    heads.k = kv.k;
    heads.v = kv.v;
  } else {
    kv = {heads.k, heads.v};
  }
  if (query_scale_) heads.q = heads.q * scale_queries(heads.q, batch);
  return attend_gated(heads, batch);
}

Tensor Attention::attend_gated(const Heads& heads, const MicroBatch& batch) {
  Tensor y =
      applies_dropout(dropout_, batch) ? attend_by_formula(heads, batch) : attend(heads, batch);
  if (heads.gate.defined()) y = y * heads.gate.flatten(2).sigmoid();
  return flatten_tokens(y, tp_);
}

}  // namespace zeroth::model
