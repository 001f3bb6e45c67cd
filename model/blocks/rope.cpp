#include "model/blocks/rope.h"

#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "model/kernels/fused.h"

namespace zeroth::model {
namespace {

using torch::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct Rotate : torch::autograd::Function<Rotate> {
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

// Llama 3: long wavelengths are stretched by the factor, short ones stay, those between are
// blended.
Tensor stretch_llama3(const Tensor& frequencies, const RopeSpec& spec) {
  const auto context = static_cast<double>(spec.original_max_positions);
  const Tensor wavelength = 2 * std::numbers::pi / frequencies;
  const Tensor blend = (context / wavelength - spec.low_freq_factor) /
                       (spec.high_freq_factor - spec.low_freq_factor);
  const Tensor blended = (1 - blend) * frequencies / spec.factor + blend * frequencies;
  const Tensor is_long = wavelength > context / spec.low_freq_factor;
  const Tensor is_short = wavelength < context / spec.high_freq_factor;
  return at::where(is_long, frequencies / spec.factor, at::where(is_short, frequencies, blended));
}

bool are_like(const RopeTable::Angles& angles, const Tensor& like) {
  return angles.cos.defined() && angles.cos.scalar_type() == like.scalar_type() &&
         angles.cos.device() == like.device();
}

}  // namespace

RopeTable::RopeTable(const RopeSpec& spec, int64_t head_dim, int64_t max_positions)
    : spec_(spec), head_dim_(head_dim), max_positions_(max_positions) {}

Tensor RopeTable::frequencies(int64_t seq) const {
  double theta = spec_.theta;
  if (spec_.scaling == RopeScaling::kDynamic) {
    const auto length = static_cast<double>(std::max(seq, max_positions_));
    const double stretch =
        spec_.factor * length / static_cast<double>(max_positions_) - (spec_.factor - 1);
    const auto dim = static_cast<double>(head_dim_);
    theta *= std::pow(stretch, dim / (dim - 2));
  }
  const Tensor exponent =
      torch::arange(0, head_dim_, 2, torch::kFloat32) / static_cast<double>(head_dim_);
  const Tensor plain = 1.0 / at::pow(theta, exponent);
  if (spec_.scaling == RopeScaling::kLinear) return plain / spec_.factor;
  if (spec_.scaling == RopeScaling::kLlama3) return stretch_llama3(plain, spec_);
  return plain;
}

RopeTable::Angles RopeTable::angles(const Tensor& positions, int64_t seq,
                                    const Tensor& like) const {
  const torch::NoGradGuard no_grad;
  const Tensor turns = positions.to(torch::kFloat32).unsqueeze(-1) *
                       frequencies(seq).to(positions.device());  // [batch, seq, head_dim / 2]
  const auto ready = [&](const Tensor& t) { return t.unsqueeze(2).to(like.options()); };
  return {ready(turns.cos()), ready(turns.sin())};
}

const RopeTable::Angles& RopeTable::sequence(int64_t seq, const Tensor& like) {
  if (seq != cached_seq_ || !are_like(cached_, like)) {
    cached_ = angles(torch::arange(seq, torch::kInt64).unsqueeze(0), seq, like);
    cached_seq_ = seq;
  }
  return cached_;
}

const RopeTable::Angles& RopeTable::at(const Tensor& positions, const Tensor& like) {
  if (!positions.is_same(last_positions_) || !are_like(at_last_positions_, like)) {
    const bool by_length = spec_.scaling == RopeScaling::kDynamic;
    const int64_t seq = by_length ? positions.max().item<int64_t>() + 1 : 0;
    at_last_positions_ = angles(positions, seq, like);
    last_positions_ = positions;
  }
  return at_last_positions_;
}

Tensor rotate(const Tensor& x, const RopeTable::Angles& angles) {
  return Rotate::apply(x, angles.cos, angles.sin);
}

}  // namespace zeroth::model
