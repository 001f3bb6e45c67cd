#include "optim/update_constants.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "base/hash.h"
#include "configs/config.h"
#include "optim/update_step.h"

namespace zeroth::optim::kernel {
namespace {

using configs::OptimizerConfig;
using Kind = OptimizerConfig::Kind;

float narrow(double x) {
  return static_cast<float>(x);
}

void set_adam(const OptimizerConfig& config, const UpdateStep& step, Constants& constants) {
  const double update = bias_correction_step(config, step.update);
  const auto [beta1, beta2] = step.betas;
  const float weight = narrow(1 - beta1);
  constants.from_gradient = weight >= 0.5F;
  constants.add_first = constants.from_gradient ? weight - 1 : weight;
  constants.keep_second = narrow(beta2);
  constants.add_second = narrow(1 - beta2);
  constants.root_divisor = narrow(std::sqrt(1 - std::pow(beta2, update)));
  constants.minus_rate = narrow(-(step.lr / (1 - std::pow(beta1, update))));
  constants.eps = narrow(config.eps);
}

// Sets the constants of Adam with coded moments: as Adam's, but m = m * beta1 + (1 - beta1) * g.
void set_coded_adam(const OptimizerConfig& config, const UpdateStep& step, Constants& constants) {
  set_adam(config, step, constants);
  constants.keep_first = narrow(step.betas[0]);
  constants.add_first = narrow(1 - step.betas[0]);
  constants.from_gradient = false;
}

void set_lion(const OptimizerConfig&, const UpdateStep& step, Constants& constants) {
  const auto [beta1, beta2] = step.betas;
  constants.magnitude = narrow(step.lr);
  constants.keep_first = narrow(beta1);
  constants.add_first = narrow((1 - beta1) * step.grad_factor);
  constants.keep_second = narrow(beta2);
  constants.add_second = narrow((1 - beta2) * step.grad_factor);
}

void set_adagrad(const OptimizerConfig& config, const UpdateStep& step, Constants& constants) {
  const double earlier = static_cast<double>(step.update) - 1;
  constants.minus_rate = narrow(-(step.lr / (1 + earlier * config.lr_decay)));
  constants.eps = narrow(config.eps);
}

void set_sgd(const OptimizerConfig& config, const UpdateStep& step, Constants& constants) {
  constants.minus_rate = narrow(-step.lr);
  constants.keep_first = narrow(config.momentum);
  constants.add_first = narrow(1 - config.dampening);
  constants.from_gradient = step.update == 1;
  constants.nesterov = config.nesterov;
}

// Sets Lamb's constants, in fp32 like DeepSpeed's kernel, for which 1 - 0.999 is 0.00099998713.
void set_lamb(const OptimizerConfig& config, const UpdateStep& step, Constants& constants) {
  const double update = bias_correction_step(config, step.update);
  const auto correction = [&](float beta) { return narrow(1 - std::pow(double{beta}, update)); };
  constants.keep_first = narrow(step.betas[0]);
  constants.add_first = 1 - constants.keep_first;
  constants.keep_second = narrow(step.betas[1]);
  constants.add_second = 1 - constants.keep_second;
  constants.minus_rate = -(narrow(step.lr) * std::sqrt(correction(constants.keep_second)) /
                           correction(constants.keep_first));
  constants.eps = narrow(config.eps);
  constants.eps_inside = config.eps_inside_sqrt;
}

// An optimizer of two formulas has a row for each.
struct OptimizerRow {
  Kind kind;
  OptimizerTraits traits;
};

constexpr OptimizerRow kOptimizers[] = {
    {Kind::kAdamW, {kAdam, 2, {"exp_avg", "exp_avg_sq"}, true, set_adam}},
    {Kind::kAdam, {kAdam, 2, {"exp_avg", "exp_avg_sq"}, false, set_adam}},
    {Kind::kLion, {kLion, 1, {"exp_avg"}, true, set_lion}},
    {Kind::kSgd, {kSgd, 0, {}, false, set_sgd}},
    {Kind::kSgd, {kSgdMomentum, 1, {"momentum_buffer"}, false, set_sgd}},
    {Kind::kAdagrad,
     {kAdagrad, 1, {"sum"}, false, set_adagrad, &OptimizerConfig::initial_accumulator_value}},
    {Kind::kLamb, {kNoFormula, 2, {"exp_avg", "exp_avg_sq"}, false, set_lamb}},
    {Kind::kAdamW8bit,
     {kCodedAdam,
      2,
      {"exp_avg", "exp_avg_sq"},
      true,
      set_coded_adam,
      nullptr,
      {"exp_avg_absmax", "exp_avg_sq_absmax"}}}};

}  // namespace

const OptimizerTraits& optimizer_traits(const OptimizerConfig& config) {
  for (const auto& [kind, traits] : kOptimizers) {
    const bool fits = traits.formula != kSgd || config.momentum == 0;
    if (kind == config.kind && fits) return traits;
  }
  throw InternalError(fmt::format("optimizer kind {}", static_cast<int>(config.kind)));
}

Formula select_formula(const OptimizerConfig& config) {
  const Formula formula = optimizer_traits(config).formula;
  ZEROTH_CHECK(formula != kNoFormula, "optimizer kind {}", static_cast<int>(config.kind));
  return formula;
}

size_t num_states(Formula formula) {
  return std::ranges::find(kOptimizers, formula,
                           [](const OptimizerRow& row) { return row.traits.formula; })
      ->traits.num_states;
}

double bias_correction_step(const OptimizerConfig& config, int64_t update) {
  return config.bias_correction ? static_cast<double>(update)
                                : std::numeric_limits<double>::infinity();
}

Constants make_constants(const OptimizerConfig& config, const UpdateStep& step) {
  Constants constants;
  const float divisor = narrow(1 / step.grad_factor);
  std::isnormal(divisor) ? constants.divisor = divisor
                         : constants.factor = narrow(step.grad_factor);
  const OptimizerTraits& traits = optimizer_traits(config);
  if (traits.decouples_decay) {
    constants.keep = narrow(1 - step.lr * step.weight_decay);
  } else {
    constants.decay = narrow(step.weight_decay);
  }
  traits.set_constants(config, step, constants);
  return constants;
}

void set_rounding_keys(const UpdateStep& step, int64_t element, RoundingKey (&keys)[kNumArrays]) {
  const uint64_t step_hash = mix64(mix64(step.rounding_seed) + static_cast<uint64_t>(step.update));
  const uint64_t upper_half = static_cast<uint64_t>(element) >> 32;
  for (size_t array = 0; array < kNumArrays; ++array) {
    const uint64_t key = mix64(step_hash + (uint64_t{array} << 32 | upper_half));
    keys[array] = {static_cast<uint32_t>(key), static_cast<uint32_t>(key >> 32)};
  }
}

}  // namespace zeroth::optim::kernel
