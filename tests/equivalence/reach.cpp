#include "tests/equivalence/reach.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace zeroth::equivalence {
namespace {

using OptimizerKind = configs::OptimizerConfig::Kind;
using torch::Tensor;

// The most that |m / sqrt(v)| can be, by Cauchy and Schwarz over all gradients so far.
double largest_update(const std::array<double, 2>& betas) {
  const auto [beta1, beta2] = betas;
  return (1 - beta1) / std::sqrt((1 - beta2) * (1 - beta1 * beta1 / beta2));
}

// The larger gap. One that is not a number is larger than any other: no bound holds for it.
double larger(double a, double b) {
  return std::isnan(a) || a > b ? a : b;
}

}  // namespace

void widen(Noise& noise, const Tensors& first_gradients, const Tensors& reference_gradients) {
  noise.first_gradient =
      std::max(noise.first_gradient, largest_gap(first_gradients, reference_gradients));
}

void widen(Noise& noise, const History& history, const History& reference,
           const configs::OptimizerConfig& config) {
  ZEROTH_CHECK(history.size() == reference.size(), "{} and {} updates", history.size(),
               reference.size());
  noise.states.resize(reference.size());
  double largest = 0;
  for (size_t i = 0; i < reference.size(); ++i) {
    largest = std::max(largest, largest_gap(history[i].states, reference[i].states, config));
    noise.states[i] = std::max(noise.states[i], largest);
  }
}

double largest_gap(const std::vector<Tensors>& states, const std::vector<Tensors>& reference,
                   const configs::OptimizerConfig& config) {
  ZEROTH_CHECK(states.size() == reference.size(), "{} and {} states", states.size(),
               reference.size());
  const auto roots = [](const Tensors& squares) {
    Tensors all;
    for (const auto& [name, value] : squares) all[name] = value.to(torch::kDouble).sqrt();
    return all;
  };
  double largest = 0;
  for (size_t i = 0; i < reference.size(); ++i) {
    const bool squares = i == 1 || config.kind == OptimizerKind::kAdagrad;
    largest = larger(largest, squares ? largest_gap(roots(states[i]), roots(reference[i]))
                                      : largest_gap(states[i], reference[i]));
  }
  return largest;
}

Tensors reach(const History& reference, const Noise& noise,
              const configs::OptimizerConfig& config) {
  Tensors distances;
  for (const auto& [name, last] : reference.back().values) {
    Reach reach(config);
    for (size_t i = 0; i < reference.size(); ++i) {
      std::vector<Tensor> states;
      for (const Tensors& state : reference[i].states) states.push_back(state.at(name));
      reach.add(reference[i].values.at(name), states, reference[i].lr, kMargin * noise.states[i]);
    }
    distances[name] = reach.distance();
  }
  return distances;
}

double largest_gap(const Tensors& gradients, const Tensors& reference) {
  ZEROTH_CHECK(gradients.size() == reference.size(), "{} and {} parameters", gradients.size(),
               reference.size());
  double largest = 0;
  for (const auto& [name, expected] : reference) {
    const Tensor off = gradients.at(name).to(torch::kDouble).sub(expected).abs().max();
    largest = larger(largest, (off / expected.abs().max().to(torch::kDouble)).item<double>());
  }
  return largest;
}

double rounding_noise(const Row& row) {
  const double rounding = row.precision == configs::Precision::kBf16 ? 0x1p-8 : 0x1p-11;
  return rounding * static_cast<double>(2 * row.ranks * row.accumulation + 1);
}

// In rates.
Tensor Reach::step(const std::vector<Tensor>& states, double noise) const {
  const Tensor first = states.front().to(torch::kDouble);
  const auto part_of = [&](const Tensor& sizes) { return noise * sizes.max().item<double>(); };
  if (config_.kind == OptimizerKind::kSgd) {  // a buffer of at most 1 / (1 - momentum) gradients
    const double largest = part_of(first.abs()) / (1 - config_.momentum);
    return at::full_like(first, 2 * largest);
  }
  if (config_.kind == OptimizerKind::kLion) {  // the sign of (1 - beta1) g + beta1 m
    const auto [beta1, beta2] = config_.betas;
    const Tensor before = first_state_.defined() ? first_state_ : at::zeros_like(first);
    const Tensor gradient = (first - beta2 * before) / (1 - beta2);
    const Tensor sum = ((1 - beta1) * gradient + beta1 * before).abs();
    return sum.le(part_of(sum)).to(torch::kDouble) * 2;
  }
  const bool adam = config_.kind != OptimizerKind::kAdagrad;
  const double correction =
      adam ? 1 - std::pow(config_.betas[1], static_cast<double>(updates_)) : 1;
  const Tensor root = (adam ? states[1].to(torch::kDouble) : first).div(correction).sqrt();
  const double limit = 2 * (adam ? largest_update(config_.betas) : 1);
  return (2 * part_of(root) / (root + config_.eps)).clamp_max(limit);
}

// In rates. Lamb's direction u is Adam's times s, its rate is divided by s: what is left is the
// ratio of the parameter's norm to u's, and what is wrong with both norms.
Tensor Reach::lamb_step(const Tensor& value, const std::vector<Tensor>& states,
                        double noise) const {
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
  const Tensor off = step(states, noise) * v.ne(0) + config_.weight_decay / s * far;
  return ratio * (off + u.abs() * (off.norm() / u.norm() + far.norm() / (s * p.norm())));
}

void Reach::add(const Tensor& value, const std::vector<Tensor>& states, double lr, double noise) {
  ++updates_;
  constexpr double kUlp = 0x1p-23;
  const Tensor moved =
      config_.kind == OptimizerKind::kLamb ? lamb_step(value, states, noise) : step(states, noise);
  const Tensor more = moved * lr + value.to(torch::kDouble).abs() * kUlp;
  distance_ = distance_.defined() ? distance_ + more : more;
  first_state_ = states.front().to(torch::kDouble).clone();
}

}  // namespace zeroth::equivalence
