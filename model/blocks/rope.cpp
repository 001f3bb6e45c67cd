#include "model/blocks/rope.h"

#include <torch/csrc/autograd/custom_function.h>

#include "model/blocks/rope_frequencies.h"
#include "model/kernels/fused.h"

namespace zeroth::model {
namespace {

using torch::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct RotateFunction : torch::autograd::Function<RotateFunction> {
  static Tensor forward(AutogradContext* ctx, const Tensor& x, const Tensor& cos,
                        const Tensor& sin) {
    ctx->save_for_backward({cos, sin});
    return rotate_pairs(x, cos, sin, 1);
  }

  static variable_list backward(AutogradContext* ctx, variable_list dys) {
    const torch::NoGradGuard no_grad;
    const variable_list saved = ctx->get_saved_variables();
    return {rotate_pairs(dys[0], saved[0], saved[1], -1), Tensor(), Tensor()};
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
  return RotateFunction::apply(x, angles.cos, angles.sin);
}

}  // namespace zeroth::model
