#include "model/blocks/rope.h"

#include "model/blocks/rope_frequencies.h"
#include "model/custom_function.h"
#include "model/kernels/fused.h"

namespace zeroth::model {
namespace {

using torch::Tensor;

struct RotateFunction final : CustomFunction {
  TensorVector forward(const FunctionContext& context, const TensorVector& inputs) override {
    context.save_for_backward({inputs[1], inputs[2]});
    return {rotate_pairs(inputs[0], inputs[1], inputs[2], 1)};
  }

  TensorVector backward(const FunctionContext& context, TensorVector grads) const override {
    const TensorVector saved = context.saved();
    return {rotate_pairs(grads[0], saved[0], saved[1], -1), Tensor(), Tensor()};
  }
};

bool matches(const RopeTable::Angles& angles, const Tensor& like) {
  return angles.cos.defined() && angles.cos.scalar_type() == like.scalar_type() &&
         angles.cos.device() == like.device();
}

}  // namespace

RopeTable::RopeTable(const RopeSpec& spec, int64_t head_dim, int64_t max_positions)
    : spec_(spec), head_dim_(head_dim), max_positions_(max_positions) {}

RopeTable::Angles RopeTable::angles(const Tensor& positions, int64_t seq,
                                    const Tensor& like) const {
  const torch::NoGradGuard no_grad;
  const Tensor turns = positions.to(torch::kFloat32).unsqueeze(-1) *
                       rope_frequencies(spec_, head_dim_, max_positions_, seq)
                           .to(positions.device());  // [batch, seq, head_dim / 2]
  const auto ready = [&](const Tensor& t) {
    return t.mul_(spec_.attention_factor).unsqueeze(2).to(like.options());
  };
  return {ready(turns.cos()), ready(turns.sin())};
}

const RopeTable::Angles& RopeTable::sequence(int64_t seq, const Tensor& like) {
  if (seq != cached_seq_ || !matches(cached_, like)) {
    cached_ = angles(torch::arange(seq, torch::kInt64).unsqueeze(0), seq, like);
    cached_seq_ = seq;
  }
  return cached_;
}

const RopeTable::Angles& RopeTable::at(const Tensor& positions, const Tensor& like) {
  if (!positions.is_same(last_positions_) || !matches(last_angles_, like)) {
    const int64_t seq = depends_on_length(spec_) ? positions.max().item<int64_t>() + 1 : 0;
    last_angles_ = angles(positions, seq, like);
    last_positions_ = positions;
  }
  return last_angles_;
}

Tensor rotate(const Tensor& x, const RopeTable::Angles& angles) {
  return apply_function(std::make_shared<RotateFunction>(), {x, angles.cos, angles.sin})[0];
}

}  // namespace zeroth::model
