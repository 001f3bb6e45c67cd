#include "model/blocks/rope_frequencies.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace zeroth::model {
namespace {

using torch::Tensor;

// Returns positions per radian, [head_dim / 2].
Tensor periods(double theta, int64_t head_dim) {
  const Tensor exponent =
      torch::arange(0, head_dim, 2, torch::kFloat32) / static_cast<double>(head_dim);
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
  const Tensor ramp = (torch::arange(head_dim / 2, torch::kFloat32) - first) / (last - first);
  const Tensor kept = 1 - ramp.clamp(0, 1);
  return 1 / (spec.factor * periods) * (1 - kept) + 1 / periods * kept;
}

Tensor scale_each(const Tensor& periods, const std::vector<double>& factors) {
  return 1 / (torch::tensor(factors, torch::kFloat32) * periods);
}

}  // namespace

Tensor rope_frequencies(const RopeSpec& spec, int64_t head_dim, int64_t max_positions,
                        int64_t seq) {
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
    case RopeScaling::kLongRope:
      return scale_each(unscaled,
                        seq > spec.original_max_positions ? spec.long_factors : spec.short_factors);
  }
  return {};
}

bool depends_on_length(const RopeSpec& spec) {
  return spec.scaling == RopeScaling::kDynamic || spec.scaling == RopeScaling::kLongRope;
}

}  // namespace zeroth::model
