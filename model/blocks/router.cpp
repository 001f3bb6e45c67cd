#include "model/blocks/router.h"

#include <ATen/ops/bincount.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/where.h>

#include <cmath>
#include <limits>
#include <utility>

#include "model/blocks/main_grad.h"
#include "model/custom_function.h"

namespace zeroth::model {
namespace {

using torch::Tensor;

// BalanceScores returns its input, the softmax [n, experts], and adds the gradient of the load
// balancing loss to that of the rows of tokens, `is_token` [n, 1].
class BalanceScores final : public CustomFunction {
 public:
  BalanceScores(std::shared_ptr<RouterSums> sums, Tensor is_token)
      : sums_(std::move(sums)), is_token_(std::move(is_token)) {}

  TensorVector forward(const FunctionContext&, const TensorVector& inputs) override {
    return {inputs[0].view_as(inputs[0])};
  }

  TensorVector backward(const FunctionContext&, TensorVector grads) const override {
    if (!sums_->score_gradient.defined()) return grads;
    return {grads[0] + is_token_ * sums_->score_gradient};
  }

 private:
  std::shared_ptr<RouterSums> sums_;
  Tensor is_token_;
};

// Returns, for each row of this rank's shard of the tokens, whether it is one, [rows, 1] bool, and
// neither fills a row of the batch nor the shard.
Tensor token_rows(const MicroBatch& batch, int64_t rows, const TensorParallelPtr& tp,
                  torch::Device device) {
  const SequenceShard shard =
      tp ? sequence_shard(batch.tokens.numel(), *tp) : SequenceShard{0, rows, rows};
  Tensor is_token = at::zeros({rows, 1}, torch::TensorOptions(device).dtype(torch::kBool));
  const Tensor own = is_token.narrow(0, 0, shard.tokens);
  if (batch.attention_mask.defined()) {
    own.copy_(batch.attention_mask.flatten().narrow(0, shard.first, shard.tokens).unsqueeze(1));
  } else {
    own.fill_(true);
  }
  return is_token;
}

}  // namespace

Router::Router(const ModelSpec& spec, std::string block, TensorParallelPtr tp)
    : spec_(spec.experts->router),
      block_(std::move(block)),
      num_experts_(spec.experts->num_experts),
      top_k_(spec.experts->top_k),
      aux_loss_coef_(spec.experts->aux_loss_coef),
      tp_(std::move(tp)) {
  if (spec_.has_scales) {
    NormSpec norm = spec.norm;
    norm.weight = norm.bias = false;
    norm_ = std::make_shared<Norm>(norm, spec.hidden_size);
    scale_ = register_parameter("scale", meta_parameter({spec.hidden_size}));
    per_expert_scale_ = register_parameter("per_expert_scale", meta_parameter({num_experts_}));
    proj_ = register_module(
        "proj", std::make_shared<Linear>(LinearShape{.in = spec.hidden_size,
                                                     .out = num_experts_,
                                                     .tp = tp_,
                                                     .quantization = spec.quantization}));
    return;
  }
  weight_ = register_parameter("weight", meta_parameter({num_experts_, spec.hidden_size}));
  if (spec_.bias) bias_ = register_parameter("bias", meta_parameter({num_experts_}));
  if (spec_.correction_bias) {
    const std::vector<int64_t> row = {1, num_experts_}, vector = {num_experts_};
    correction_bias_ = register_parameter("correction_bias",
                                          meta_parameter(spec_.correction_in_row ? row : vector),
                                          /*requires_grad=*/false);
  }
}

Tensor Router::logits(const Tensor& x, const MicroBatch& batch) const {
  if (spec_.has_scales) {
    const double root = std::sqrt(static_cast<double>(x.size(1)));
    const Tensor scaled = norm_->forward(x) * deliver_grad(scale_) * (1 / root);
    return linear(scaled, *proj_, batch).to(torch::kFloat);
  }
  const auto dtype = spec_.in_fp32 ? torch::kFloat : x.scalar_type();
  const Tensor bias = bias_.defined() ? deliver_grad(bias_).to(dtype) : Tensor();
  return at::linear(x.to(dtype), deliver_grad(weight_).to(dtype), bias).to(torch::kFloat);
}

Tensor Router::choose(const Tensor& scores) const {
  const torch::NoGradGuard no_grad;
  Tensor choice = scores.detach();
  if (correction_bias_.defined()) choice = choice + correction_bias_.to(torch::kFloat);
  if (spec_.kept_groups < spec_.groups) {
    const Tensor groups = choice.view({-1, spec_.groups, num_experts_ / spec_.groups});
    const Tensor rank =
        spec_.groups_by_two ? std::get<0>(groups.topk(2, -1)).sum(-1) : std::get<0>(groups.max(-1));
    const Tensor kept = std::get<1>(rank.topk(spec_.kept_groups, -1));
    const Tensor dropped = at::ones_like(rank, torch::kBool).scatter_(1, kept, false);
    choice = groups.masked_fill(dropped.unsqueeze(-1), -std::numeric_limits<float>::infinity())
                 .flatten(1);
  }
  return std::get<1>(choice.topk(top_k_, -1));
}

Tensor Router::count(const Tensor& scores, const Tensor& experts, const MicroBatch& batch) const {
  const Tensor is_token = token_rows(batch, scores.size(0), tp_, scores.device());
  const Tensor of_tokens = at::where(is_token, experts, num_experts_);
  batch.router_sums->layers[block_] = {
      .counts = at::bincount(of_tokens.flatten(), {}, num_experts_ + 1).narrow(0, 0, num_experts_),
      .scores = scores.detach().masked_fill(is_token.logical_not(), 0).sum(0),
      .tokens = is_token.sum(),
      .aux_loss_coef = aux_loss_coef_};
  if (aux_loss_coef_ == 0) return scores;
  return apply_function(std::make_shared<BalanceScores>(batch.router_sums, is_token), {scores})[0];
}

Router::Choice Router::forward(const Tensor& x, const MicroBatch& batch) const {
  const Tensor z = logits(x, batch);
  Tensor scores = spec_.score == RouterScore::kSoftmax ? z.softmax(-1) : z.sigmoid();
  // A score may be rounded to that of another expert where their logits differ.
  const bool by_logits = !correction_bias_.defined() && spec_.groups == spec_.kept_groups;
  const Tensor experts = choose(by_logits ? z : scores);
  if (batch.router_sums) scores = count(scores, experts, batch);
  Tensor weights = scores.gather(1, experts);
  if (spec_.normalize)
    weights = weights / weights.sum(-1, /*keepdim=*/true).clamp_min(spec_.min_sum);
  if (spec_.scale != 1) weights = weights * spec_.scale;
  if (per_expert_scale_.defined()) {
    const Tensor scales = deliver_grad(per_expert_scale_).to(torch::kFloat);
    weights = weights * scales.index_select(0, experts.flatten()).view(experts.sizes());
  }
  return {experts, weights.to(x.scalar_type())};
}

}  // namespace zeroth::model
