#include "model/blocks/latent_projection.h"

#include <ATen/ops/cat.h>

#include <utility>

namespace zeroth::model {

using torch::Tensor;

AttentionInputs AttentionInputs::widened() const {
  return {q.to(torch::kFloat), k.to(torch::kFloat), v.to(torch::kFloat), gate};
}

LatentProjection::LatentProjection(const ModelSpec& spec, TensorParallelPtr tp)
    : spec_(*spec.latent), tp_(std::move(tp)) {
  constexpr double kEps = 1e-6;  // whatever the model's own is, as in transformers
  const int64_t heads = spec.num_heads / tp_size(tp_), first = tp_ ? tp_->rank() * heads : 0;
  const auto vector = [&](const char* name, int64_t size) {
    return register_module(
        name, std::make_shared<Linear>(LinearShape{.in = spec.hidden_size,
                                                   .out = size,
                                                   .bias = spec.qkv_bias,
                                                   .tp = tp_,
                                                   .quantization = spec.quantization}));
  };
  const auto of_heads = [&](const char* name, int64_t in, int64_t head_size) {
    LinearShape shape{
        .in = in, .out = spec.num_heads * head_size, .tp = tp_, .quantization = spec.quantization};
    if (tp_) {
      shape.shard = {.style = ParallelStyle::kColwise,
                     .begin = first * head_size,
                     .extent = heads * head_size,
                     .full_size = shape.out};
    }
    return register_module(name, std::make_shared<Linear>(shape));
  };
  const auto norm = [&](const char* name, int64_t size) {
    return register_module(name, std::make_shared<Norm>(NormSpec{.eps = kEps}, size));
  };
  if (spec_.q_rank > 0) {
    q_a_ = vector("q_a", spec_.q_rank);
    q_norm_ = norm("q_norm", spec_.q_rank);
    q_b_ = of_heads("q_b", spec_.q_rank, spec.head_dim);
  } else {
    q_ = of_heads("q", spec.hidden_size, spec.head_dim);
  }
  kv_a_ = vector("kv_a", spec_.kv_rank + spec_.rope_dim);
  kv_norm_ = norm("kv_norm", spec_.kv_rank);
  kv_b_ = of_heads("kv_b", spec_.kv_rank, spec_.nope_dim + spec_.v_dim);
}

AttentionInputs LatentProjection::forward(const Tensor& x, const RopeTable::Angles& angles,
                                          const MicroBatch& batch) const {
  const auto heads = [&](const Tensor& y, int64_t size) {
    return unflatten_tokens(y, batch.tokens, tp_).unflatten(2, {-1, size});
  };
  const Tensor queries =
      q_ ? linear(x, *q_, batch) : linear(q_norm_->forward(linear(x, *q_a_, batch)), *q_b_, batch);
  const Tensor q = heads(queries, spec_.nope_dim + spec_.rope_dim);
  const Tensor both = linear(x, *kv_a_, batch);
  const Tensor latent = both.narrow(-1, 0, spec_.kv_rank).contiguous();
  Tensor shared = both.narrow(-1, spec_.kv_rank, spec_.rope_dim).contiguous();
  if (tp_) shared = gather_sequence(shared, tp_, "shared keys");
  const Tensor kv =
      heads(linear(kv_norm_->forward(latent), *kv_b_, batch), spec_.nope_dim + spec_.v_dim);
  const auto turn = [&](const Tensor& part) { return rotate(part.contiguous(), angles); };
  const Tensor turned_q = turn(q.narrow(-1, spec_.nope_dim, spec_.rope_dim));
  const Tensor turned_k = turn(heads(shared, spec_.rope_dim)).expand_as(turned_q);
  return {at::cat({q.narrow(-1, 0, spec_.nope_dim), turned_q}, -1),
          at::cat({kv.narrow(-1, 0, spec_.nope_dim), turned_k}, -1),
          kv.narrow(-1, spec_.nope_dim, spec_.v_dim).contiguous()};
}

}  // namespace zeroth::model
