#include "tests/equivalence/reach.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace zeroth::equivalence {
namespace {

using Kind = configs::OptimizerConfig::Kind;
using torch::Tensor;

// The most that |m / sqrt(v)| can be, by Cauchy and Schwarz over all gradients so far.
double largest_update(const std::array<double, 2>& betas) {
  const auto [beta1, beta2] = betas;
  return (1 - beta1) / std::sqrt((1 - beta2) * (1 - beta1 * beta1 / beta2));
}

}  // namespace

double largest_gap(const Tensors& gradients, const Tensors& reference) {
  ZEROTH_CHECK(gradients.size() == reference.size(), "{} and {} parameters", gradients.size(),
               reference.size());
  double largest = 0;
  for (const auto& [name, expected] : reference) {
    const Tensor off = gradients.at(name).to(torch::kDouble).sub(expected).abs().max();
    const double gap = (off / expected.abs().max().to(torch::kDouble)).item<double>();
    largest = std::isnan(gap) ? gap : std::max(largest, gap);
  }
  return largest;
}

double first_noise(const Row& row) {
  if (row.precision == configs::Precision::kFp32) return row.tensor > 1 ? kSharedNoise : kNoise;
  const double rounding = row.precision == configs::Precision::kBf16 ? 0x1p-8 : 0x1p-11;
  return rounding * static_cast<double>(2 * row.ranks * row.accumulation + 1);
}

double later_noise(int64_t updates) {
  return static_cast<double>(updates) * kNoise;
}

// In rates.
Tensor Reach::step(const std::vector<Tensor>& states) const {
  const Tensor first = states.front().to(torch::kDouble);
  const auto noise = [&](const Tensor& sizes) {
    return later_noise(updates_) * sizes.max().item<double>();
  };
  if (config_.kind == Kind::kSgd) {  // a buffer of at most 1 / (1 - momentum) gradients
    const double largest = noise(first.abs()) / (1 - config_.momentum);
    return at::full_like(first, 2 * largest);
  }
  if (config_.kind == Kind::kLion) {  // the sign of (1 - beta1) g + beta1 m
    const auto [beta1, beta2] = config_.betas;
    const Tensor before = first_state_.defined() ? first_state_ : at::zeros_like(first);
    const Tensor gradient = (first - beta2 * before) / (1 - beta2);
    const Tensor sum = ((1 - beta1) * gradient + beta1 * before).abs();
    return sum.le(noise(sum)).to(torch::kDouble) * 2;
  }
  const bool adam = config_.kind != Kind::kAdagrad;
  const double correction =
      adam ? 1 - std::pow(config_.betas[1], static_cast<double>(updates_)) : 1;
  const Tensor root = (adam ? states[1].to(torch::kDouble) : first).div(correction).sqrt();
  const double most = 2 * (adam ? largest_update(config_.betas) : 1);
  return (2 * noise(root) / (root + config_.eps)).clamp_max(most);
}

// In rates. Lamb's direction u is Adam's times s, its rate is divided by s: what is left is the
// ratio of the parameter's norm to u's, and what is wrong with both norms.
Tensor Reach::lamb_step(const Tensor& value, const std::vector<Tensor>& states) const {
  const Tensor p = value.to(torch::kDouble), v = states[1].to(torch::kDouble);
  const Tensor u =
      states[0].to(torch::kDouble) / (v.sqrt() + config_.eps) + config_.weight_decay * p;
  const auto updates = static_cast<double>(updates_);
  const double s = (1 - std::pow(config_.betas[0], updates)) /
                   std::sqrt(1 - std::pow(config_.betas[1], updates));
  const double ratio =
      std::clamp((p.norm() / u.norm()).item<double>(), config_.min_coeff, config_.max_coeff);
  const Tensor far = distance_.defined() ? distance_ : at::zeros_like(p);
  // What never had a gradient has none in the other run.
  const Tensor off = step(states) * v.ne(0) + config_.weight_decay / s * far;
  return ratio * (off + u.abs() * (off.norm() / u.norm() + far.norm() / (s * p.norm())));
}

void Reach::add(const Tensor& value, const std::vector<Tensor>& states, double lr) {
  ++updates_;
  constexpr double kUlp = 0x1p-23;
  const Tensor moved = config_.kind == Kind::kLamb ? lamb_step(value, states) : step(states);
  const Tensor more = moved * lr + value.to(torch::kDouble).abs() * kUlp;
  distance_ = distance_.defined() ? distance_ + more : more;
  first_state_ = states.front().to(torch::kDouble).clone();
}

}  // namespace zeroth::equivalence
