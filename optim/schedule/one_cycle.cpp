#include "optim/schedule/one_cycle.h"

#include <cmath>

#include "base/error.h"

namespace zeroth::optim {
namespace {

constexpr double kSecondBeta = 0.99;  // DeepSpeed's constant, whatever the optimizer's is

double length(const configs::OneCycleConfig& config) {
  return config.first_step_size + config.second_step_size;
}

// Returns whether the update is within the cycle; DeepSpeed's last step of the cycle is the one
// that update `length` sees.
bool in_cycle(const configs::OneCycleConfig& config, int64_t update) {
  return static_cast<double>(update - 1) < length(config);
}

// Returns the position of the rate between its minimum (0) and its maximum (1). It is computed in
// fp64 as in DeepSpeed, rounding included; stairs use the integer number of updates, so that no
// stair is missed.
double cycle_position(const configs::OneCycleConfig& config, int64_t update) {
  const double total = length(config);
  const double first_fraction = config.first_step_size / total;
  const double cycles = static_cast<double>(update) / total;
  const double x = 1.0 + cycles - std::floor(1 + cycles);
  const bool rises = x <= first_fraction;
  const int64_t stairs = rises ? config.first_stair_count : config.second_stair_count;
  if (stairs <= 0) return rises ? x / first_fraction : (x - 1) / (first_fraction - 1);
  const double done = std::fmod(static_cast<double>(update), total);
  const double position =
      done <= config.first_step_size
          ? done * static_cast<double>(stairs) / config.first_step_size
          : (total - done) * static_cast<double>(stairs) / config.second_step_size;
  return std::floor(position) / static_cast<double>(stairs);
}

// Returns 1 + rate * (updates after the cycle) / decay_step_size; 1 if either is 0.
double decay(const configs::OneCycleConfig& config, double rate, int64_t update) {
  if (config.decay_step_size == 0 || rate == 0) return 1;
  const double after = static_cast<double>(update) - length(config);
  return 1 + rate * (after / config.decay_step_size);
}

}  // namespace

double one_cycle_lr(const configs::OneCycleConfig& config, int64_t update) {
  if (in_cycle(config, update)) {
    return config.min_lr + (config.max_lr - config.min_lr) * cycle_position(config, update);
  }
  return config.min_lr / decay(config, config.decay_lr_rate, update);
}

std::array<double, 2> one_cycle_betas(const configs::OneCycleConfig& config, int64_t update) {
  ZEROTH_CHECK(config.cycle_momentum, "betas of a schedule that leaves them alone");
  if (update == 0) return {config.min_momentum, kSecondBeta};  // from before any schedule step
  if (in_cycle(config, update)) {
    const double range = config.max_momentum - config.min_momentum;
    return {config.max_momentum - range * cycle_position(config, update), kSecondBeta};
  }
  return {config.max_momentum * decay(config, config.decay_momentum_rate, update), kSecondBeta};
}

}  // namespace zeroth::optim
