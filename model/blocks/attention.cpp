#include "model/blocks/attention.h"

#include <ATen/ops/scaled_dot_product_attention.h>

#include <limits>
#include <utility>

#include "device/gpu.h"
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

Tensor WindowMask::mask(int64_t seq, const Tensor& like, const Tensor& first_keys) const {
  const torch::NoGradGuard no_grad;
  Tensor seen = torch::ones({seq, seq}, like.options().dtype(torch::kBool)).tril_();
  if (window_ > 0) seen.triu_(1 - window_);
  if (first_keys.defined()) {
    const Tensor keys = torch::arange(seq, like.options().dtype(torch::kLong));
    seen = keys.ge(first_keys.to(like.device()).unsqueeze(2)).logical_and_(seen);
  }
  return torch::zeros(seen.sizes(), like.options())
      .masked_fill_(seen.logical_not(), -std::numeric_limits<double>::infinity());
}

Tensor WindowMask::get(int64_t seq, const Tensor& like, const Tensor& first_keys) {
  const auto fits = [&](const Tensor& known) {
    return known.defined() && known.size(-1) == seq && known.scalar_type() == like.scalar_type() &&
           known.device() == like.device();
  };
  if (!first_keys.defined()) {
    if (!fits(cached_)) cached_ = mask(seq, like, {});
    return cached_;
  }
  const Tensor* const known = of_first_keys_.find(first_keys);
  if (known != nullptr && fits(*known)) return *known;
  return of_first_keys_.add(first_keys, mask(seq, like, first_keys));
}

const CuSeqlens& SampleOffsets::get(const Tensor& first_keys, torch::Device device) {
  const CuSeqlens* const known = of_first_keys_.find(first_keys);
  return known != nullptr ? *known : of_first_keys_.add(first_keys, cu_seqlens(first_keys, device));
}

Attention::Attention(const ModelSpec& spec, int64_t layer, std::shared_ptr<SequenceTables> tables,
                     const DropoutSite& dropout, TensorParallelPtr tp)
    : tp_(std::move(tp)),
      num_heads_(queries(spec).heads),
      first_head_(queries(spec).first),
      total_heads_(spec.num_heads),
      head_dim_(spec.head_dim),
      window_(spec.layer_window(layer)),
      scale_(spec.score_scale(layer)),
      rotary_(spec.has_rope(layer)),
      dropout_(dropout),
      tables_(std::move(tables)) {
  register_inputs(spec);
  if (spec.qk_norm) {
    const auto norm = [&] {
      return std::make_shared<Norm>(NormKind::kRms, spec.head_dim, spec.norm_eps);
    };
    q_norm_ = register_module("q_norm", norm());
    k_norm_ = register_module("k_norm", norm());
  }
  const int64_t q_size = spec.num_heads * spec.head_dim;
  LinearShape shape{q_size, spec.hidden_size, spec.o_bias, weight_layout(spec), {},
                    tp_,    spec.quantization};
  if (tp_) {
    shape.shard = {ParallelStyle::kRowwise, first_head_ * head_dim_, num_heads_ * head_dim_,
                   q_size};
  }
  o_ = register_module("o", std::make_shared<Linear>(shape));
}

// Megatron-LM's rule: a rank has full heads, and keys and values together with their queries.
Attention::HeadRange Attention::queries(const ModelSpec& spec) const {
  const int64_t heads = spec.num_heads / tp_size(tp_);
  return {tp_ ? tp_->rank() * heads : 0, heads, 1};
}

Attention::HeadRange Attention::keys(const ModelSpec& spec) const {
  const int64_t num_ranks = tp_size(tp_), all = spec.num_kv_heads;
  if (!tp_) return {0, all, 1};
  if (all >= num_ranks) return {tp_->rank() * (all / num_ranks), all / num_ranks, 1};
  const int64_t num_replicas = num_ranks / all;
  return {tp_->rank() / num_replicas, 1, static_cast<int>(num_replicas)};
}

void Attention::register_inputs(const ModelSpec& spec) {
  const int64_t q_size = spec.num_heads * spec.head_dim;
  const int64_t kv_size = spec.num_kv_heads * spec.head_dim;
  const auto projection = [&](const char* name, int64_t out, const WeightShard& shard) {
    return register_module(name, std::make_shared<Linear>(LinearShape{
                                     spec.hidden_size, out, spec.qkv_bias, weight_layout(spec),
                                     shard, tp_, spec.quantization}));
  };
  // A single rank has one product; a rank's parts of q, k and v are not contiguous in it.
  if (spec.conv1d && !tp_) {
    qkv_ = projection("qkv", q_size + 2 * kv_size, {});
    return;
  }
  const auto shard = [&](const HeadRange& part, int64_t before, int64_t out) -> WeightShard {
    if (!tp_) return {};
    const int64_t begin = part.first * head_dim_, extent = part.heads * head_dim_;
    if (!spec.conv1d) return {ParallelStyle::kColwise, begin, extent, out, part.num_replicas};
    return {ParallelStyle::kColwise, before + begin,    extent,
            q_size + 2 * kv_size,    part.num_replicas, "qkv"};
  };
  const HeadRange kv = keys(spec);
  q_ = projection("q", q_size, shard(queries(spec), 0, q_size));
  k_ = projection("k", kv_size, shard(kv, q_size, kv_size));
  v_ = projection("v", kv_size, shard(kv, q_size + kv_size, kv_size));
}

Attention::Heads Attention::project(const Tensor& x, const MicroBatch& batch) const {
  const Tensor& like = tp_ ? batch.tokens : x;
  const int64_t rows = like.size(0), seq = like.size(1);
  const auto heads = [&](const Tensor& y) {
    return (tp_ ? y.narrow(0, 0, rows * seq) : y).view({rows, seq, -1, head_dim_});
  };
  if (!qkv_) {
    const std::vector<Tensor> y = linear(x, {q_.get(), k_.get(), v_.get()}, batch);
    // Attention keeps the values: as parts of one product they would keep queries and keys too.
    return {heads(y[0]), heads(y[1]), heads(y[2]).contiguous()};
  }
  const Tensor y = heads(linear(x, *qkv_, batch));
  const int64_t num_kv_heads = (y.size(2) - num_heads_) / 2;
  const std::vector<Tensor> parts = y.split_with_sizes({num_heads_, num_kv_heads, num_kv_heads}, 2);
  return {parts[0], parts[1], parts[2]};
}

Attention::Heads Attention::Heads::widened() const {
  return {q.to(torch::kFloat), k.to(torch::kFloat), v.to(torch::kFloat)};
}

Tensor Attention::attend(const Heads& heads, const MicroBatch& batch) {
  if (cpu_attention_supports(heads.q, heads.v)) {
    return cpu_attention(heads.q, heads.k, heads.v,
                         {.scale = scale_, .window = window_, .first_keys = batch.first_keys})
        .flatten(2);
  }
  if (prefers_fp32(heads.q)) return attend(heads.widened(), batch).to(heads.q.scalar_type());
  const auto gpu_supports = [&](bool masked) {
    return gpu_supports_gqa({.dtype = heads.q.scalar_type(),
                             .head_dim = head_dim_,
                             .masked = masked,
                             .trains = heads.q.requires_grad() || heads.k.requires_grad(),
                             .capability = gpu_capability(heads.q.device())});
  };
  const bool on_gpu = heads.q.is_cuda(), packed = batch.first_keys.defined();
  if (packed && on_gpu && head_dim_ % 8 == 0 && gpu_supports(/*masked=*/false)) {
    const CuSeqlens& samples = tables_->samples.get(batch.first_keys, heads.q.device());
    return varlen_attention(heads.q, heads.k, heads.v, samples, scale_, window_).flatten(2);
  }
  const int64_t seq = heads.q.size(1);
  std::optional<Tensor> mask;
  const bool cut = window_ > 0 && seq > window_;
  if (cut || packed) {
    mask = (cut ? tables_->window : tables_->causal).get(seq, heads.q, batch.first_keys);
    if (mask->dim() == 3) mask = mask->unsqueeze(1);
  }
  const int64_t group_size = num_heads_ / heads.k.size(2);
  const bool repeats_kv = group_size > 1 && on_gpu && !gpu_supports(mask.has_value());
  const auto keys = [&](const Tensor& x) {
    return (repeats_kv ? x.repeat_interleave(group_size, 2) : x).transpose(1, 2);
  };
  const Tensor y = at::scaled_dot_product_attention(
      heads.q.transpose(1, 2), keys(heads.k), keys(heads.v), mask, /*dropout_p=*/0.0,
      /*is_causal=*/!mask.has_value(), scale_, /*enable_gqa=*/group_size > 1 && !repeats_kv);
  return y.transpose(1, 2).flatten(2);
}

Tensor Attention::attend_with_dropout(const Heads& heads, const MicroBatch& batch) {
  if (prefers_fp32(heads.q)) {
    return attend_with_dropout(heads.widened(), batch).to(heads.q.scalar_type());
  }
  WindowMask& mask = window_ > 0 ? tables_->window : tables_->causal;
  return formula_attention(heads.q, heads.k, heads.v,
                           mask.get(heads.q.size(1), heads.q, batch.first_keys),
                           {.scale = scale_,
                            .site = dropout_,
                            .samples = seeded_samples(batch),
                            .first_head = first_head_,
                            .total_heads = total_heads_})
      .flatten(2);
}

Tensor Attention::forward(const Tensor& x, const MicroBatch& batch) {
  Heads heads = project(x, batch);
  if (q_norm_) {
    heads.q = q_norm_->forward(heads.q.contiguous());
    heads.k = k_norm_->forward(heads.k.contiguous());
  }
  if (rotary_) {
    const RopeTable::Angles& angles = batch.positions.defined()
                                          ? tables_->rope.at(batch.positions, x)
                                          : tables_->rope.sequence(heads.q.size(1), x);
    heads.q = rotate(heads.q, angles);
    heads.k = rotate(heads.k, angles);
  }
  const Tensor y =
      applies_dropout(dropout_, batch) ? attend_with_dropout(heads, batch) : attend(heads, batch);
  return linear(tp_ ? pad_to_shards(y.flatten(0, 1), *tp_) : y, *o_, batch);
}

}  // namespace zeroth::model
