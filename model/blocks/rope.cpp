#include "model/blocks/rope.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/pow.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "model/custom_function.h"
#include "model/kernels/fused.h"

namespace zeroth::model {
namespace {

using torch::Tensor;

// Returns positions per radian, [head_dim / 2].
Tensor periods(double theta, int64_t head_dim) {
  const Tensor exponent =
      torch::arange(0, head_dim, 2, torch::kFloat) / static_cast<double>(head_dim);
  return at::pow(theta, exponent);
}

// NTK by parts: theta grows with the sequence once that is longer than the model's positions.
double scale_theta(const RopeSpec& spec, int64_t head_dim, int64_t max_positions, int64_t seq) {
  const auto length = static_cast<double>(std::max(seq, max_positions));
  const double scale =
      spec.factor * length / static_cast<double>(max_positions) - (spec.factor - 1);
  const auto dim = static_cast<double>(head_dim);
  return spec.theta * std::pow(scale, dim / (dim - 2));
}

// Llama 3: long wavelengths are multiplied by the factor, short ones stay, those between are
// blended.
Tensor scale_llama3(const Tensor& frequencies, const RopeSpec& spec) {
  const auto context = static_cast<double>(spec.original_max_positions);
  const Tensor wavelength = 2 * std::numbers::pi / frequencies;
  const Tensor blend = (context / wavelength - spec.low_freq_factor) /
                       (spec.high_freq_factor - spec.low_freq_factor);
  const Tensor blended = (1 - blend) * frequencies / spec.factor + blend * frequencies;
  const Tensor is_long = wavelength > context / spec.low_freq_factor;
  const Tensor is_short = wavelength < context / spec.high_freq_factor;
  return at::where(is_long, frequencies / spec.factor, at::where(is_short, frequencies, blended));
}

// YaRN (arXiv 2309.00071): the share of interpolation rises from 0 at the frequency that turns
// beta_fast times in the original context to 1 at the one that turns beta_slow times.
Tensor scale_yarn(const Tensor& periods, const RopeSpec& spec, int64_t head_dim) {
  const auto dim = static_cast<double>(head_dim);
  const auto context = static_cast<double>(spec.original_max_positions);
  const auto index_of = [&](double turns) {
    return dim * std::log(context / (turns * 2 * std::numbers::pi)) / (2 * std::log(spec.theta));
  };
  double first = index_of(spec.beta_fast), last = index_of(spec.beta_slow);
  if (spec.truncate) {
    first = std::floor(first);
    last = std::ceil(last);
  }
  first = std::max(first, 0.0);
  last = std::min(last, dim - 1);
  if (first == last) last += 0.001;
  const Tensor ramp = (torch::arange(head_dim / 2, torch::kFloat) - first) / (last - first);
  const Tensor kept = 1 - ramp.clamp(0, 1);
  return 1 / (spec.factor * periods) * (1 - kept) + 1 / periods * kept;
}

struct RotateFunction final : CustomFunction {
  TensorVector forward(const FunctionContext& context, const TensorVector& inputs) override {
    context.save_for_backward({inputs[1], inputs[2]});
    return {apply_rope(inputs[0], inputs[1], inputs[2], 1)};
  }

  TensorVector backward(const FunctionContext& context, TensorVector grads) const override {
    const TensorVector saved = context.saved();
    return {apply_rope(grads[0], saved[0], saved[1], -1), Tensor(), Tensor()};
  }
};

bool matches(const RopeTable::Angles& angles, const Tensor& like) {
  return angles.cos.defined() && angles.cos.scalar_type() == like.scalar_type() &&
         angles.cos.device() == like.device();
}

}  // namespace

Tensor rope_frequencies(const RopeSpec& spec, int64_t whole_head_dim, int64_t max_positions,
                        int64_t seq) {
  const int64_t head_dim = spec.rotary_dim > 0 ? spec.rotary_dim : whole_head_dim;
  const Tensor unscaled = periods(spec.theta, head_dim);
  switch (spec.scaling) {
    case RopeScaling::kNone:
      return 1.0 / unscaled;
    case RopeScaling::kLinear:
      return 1.0 / unscaled / spec.factor;
    case RopeScaling::kDynamic:
      return 1.0 / periods(scale_theta(spec, head_dim, max_positions, seq), head_dim);
    case RopeScaling::kLlama3:
      return scale_llama3(1.0 / unscaled, spec);
    case RopeScaling::kYarn:
      return scale_yarn(unscaled, spec, head_dim);
    case RopeScaling::kLongRope: {
      const bool is_long = seq > spec.original_max_positions;
      const auto& factors = is_long ? spec.long_factors : spec.short_factors;
      return 1 / (torch::tensor(factors, torch::kFloat) * unscaled);
    }
    case RopeScaling::kProportional: {
      const double pairs = spec.rotated_share * static_cast<double>(head_dim) / 2;
      Tensor frequencies = 1.0 / unscaled / spec.factor;
      frequencies.slice(0, static_cast<int64_t>(pairs)).zero_();
      return frequencies;
    }
  }
  return {};
}

bool depends_on_length(const RopeSpec& spec) {
  return spec.scaling == RopeScaling::kDynamic || spec.scaling == RopeScaling::kLongRope;
}

RopeTable::RopeTable(const RopeSpec& spec, int64_t head_dim, int64_t max_positions)
    : spec_(spec),
      head_dim_(spec.head_dim > 0 ? spec.head_dim : head_dim),
      max_positions_(max_positions) {}

RopeTable::Angles RopeTable::angles(const Tensor& positions, int64_t seq,
                                    const Tensor& like) const {
  const torch::NoGradGuard no_grad;
  const Tensor turns = positions.to(torch::kFloat).unsqueeze(-1) *
                       rope_frequencies(spec_, head_dim_, max_positions_, seq)
                           .to(positions.device());  // [batch, seq, head_dim / 2]
  const auto ready = [&](const Tensor& t) {
    return t.mul_(spec_.attention_factor).unsqueeze(2).to(like.options());
  };
  return {ready(turns.cos()), ready(turns.sin()), spec_.interleaved};
}

RopeTable::Angles RopeTable::sequence(int64_t seq, const Tensor& like) {
  const int64_t cached = matches(cached_, like) ? cached_.cos.size(1) : 0;
  if (depends_on_length(spec_) ? seq != cached : seq > cached)
    cached_ = angles(torch::arange(seq, torch::kLong).unsqueeze(0), seq, like);
  return {cached_.cos.narrow(1, 0, seq), cached_.sin.narrow(1, 0, seq), spec_.interleaved};
}

RopeTable::Angles RopeTable::at(const Tensor& positions, const Tensor& like) {
  const Angles* const known = of_positions_.find(positions);
  if (known != nullptr && matches(*known, like)) return *known;
  const int64_t seq = depends_on_length(spec_) ? positions.max().item<int64_t>() + 1 : 0;
  return of_positions_.add(positions, angles(positions, seq, like));
}

Tensor rotate(const Tensor& x, const RopeTable::Angles& angles) {
  const int64_t rotary_dim = 2 * angles.cos.size(-1);
  if (rotary_dim < x.size(-1)) {
    const Tensor turned = rotate(x.narrow(-1, 0, rotary_dim), angles);
    return at::cat({turned, x.narrow(-1, rotary_dim, x.size(-1) - rotary_dim)}, -1);
  }
  const Tensor pairs =
      angles.interleaved ? x.unflatten(-1, {-1, 2}).transpose(-1, -2).flatten(-2) : x;
  return apply_function(std::make_shared<RotateFunction>(), {pairs, angles.cos, angles.sin})[0];
}

}  // namespace zeroth::model
