#include "optim/update_constants.h"

#include <cmath>
#include <iterator>
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

void set_lion(const UpdateStep& step, Constants& constants) {
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

}  // namespace

Formula select_formula(const OptimizerConfig& config) {
  switch (config.kind) {
    case Kind::kAdamW:
    case Kind::kAdam:
      return kAdam;
    case Kind::kLion:
      return kLion;
    case Kind::kAdagrad:
      return kAdagrad;
    case Kind::kSgd:
      return config.momentum == 0 ? kSgd : kSgdMomentum;
    case Kind::kLamb:  // runs two passes: optim/cpu/cpu_kernels.h
      break;
  }
  throw InternalError(fmt::format("optimizer kind {}", static_cast<int>(config.kind)));
}

double bias_correction_step(const OptimizerConfig& config, int64_t update) {
  return config.bias_correction ? static_cast<double>(update)
                                : std::numeric_limits<double>::infinity();
}

size_t num_states(Formula formula) {
  constexpr size_t kNumStates[] = {2, 1, 1, 0, 1};  // in the order of Formula
  static_assert(std::size(kNumStates) == kNumFormulas);
  return kNumStates[formula];
}

Constants make_constants(const OptimizerConfig& config, const UpdateStep& step) {
  Constants constants;
  const float divisor = narrow(1 / step.grad_factor);
  std::isnormal(divisor) ? constants.divisor = divisor
                         : constants.factor = narrow(step.grad_factor);
  const bool decoupled = config.kind == Kind::kAdamW || config.kind == Kind::kLion;
  if (decoupled) {
    constants.keep = narrow(1 - step.lr * step.weight_decay);
  } else {
    constants.decay = narrow(step.weight_decay);
  }
  switch (config.kind) {
    case Kind::kAdamW:
    case Kind::kAdam:
      set_adam(config, step, constants);
      break;
    case Kind::kLion:
      set_lion(step, constants);
      break;
    case Kind::kAdagrad:
      set_adagrad(config, step, constants);
      break;
    case Kind::kSgd:
      set_sgd(config, step, constants);
      break;
    case Kind::kLamb:
      set_lamb(config, step, constants);
      break;
  }
  return constants;
}

RoundingKey rounding_key(const UpdateStep& step, size_t array, int64_t element) {
  const uint64_t step_hash = mix64(mix64(step.rounding_seed) + static_cast<uint64_t>(step.update));
  const uint64_t upper_half = static_cast<uint64_t>(element) >> 32;
  const uint64_t key = mix64(step_hash + (uint64_t{array} << 32 | upper_half));
  return {static_cast<uint32_t>(key), static_cast<uint32_t>(key >> 32)};
}

}  // namespace zeroth::optim::kernel
