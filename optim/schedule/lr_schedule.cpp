#include "optim/schedule/lr_schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/error.h"

namespace zeroth::optim {
namespace {

using Kind = configs::SchedulerConfig::Kind;
using Warmup = configs::SchedulerConfig::Warmup;

constexpr double kSecondBeta = 0.99;  // DeepSpeed's constant, whatever the optimizer's is

double cycle_length(const configs::OneCycleConfig& config) {
  return config.first_step_size + config.second_step_size;
}

// Returns whether the update is within the cycle; DeepSpeed's last step of the cycle is the one
// that update cycle_length() sees.
bool in_cycle(const configs::OneCycleConfig& config, int64_t update) {
  return static_cast<double>(update - 1) < cycle_length(config);
}

// Returns the position of the rate between its minimum (0) and its maximum (1). It is computed in
// fp64 as in DeepSpeed, rounding included; stairs use the integer number of updates, so that no
// stair is missed.
double cycle_position(const configs::OneCycleConfig& config, int64_t update) {
  const double total = cycle_length(config);
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
double decay_divisor(const configs::OneCycleConfig& config, double rate, int64_t update) {
  if (config.decay_step_size == 0 || rate == 0) return 1;
  const double after = static_cast<double>(update) - cycle_length(config);
  return 1 + rate * (after / config.decay_step_size);
}

double range_test_lr(const configs::LrRangeTestConfig& test, int64_t update) {
  const double interval = static_cast<double>(update) / static_cast<double>(test.step_size);
  return test.min_lr * (1 + test.step_rate * (test.staircase ? std::floor(interval) : interval));
}

int64_t warmup_steps(const configs::SchedulerConfig& config) {
  return std::max<int64_t>(2, config.warmup_num_steps);
}

// Returns a fraction that is 0 at the first schedule step and 1 from the end of the warm-up on.
double warmup_fraction(const configs::SchedulerConfig& config, int64_t schedule_step) {
  if (schedule_step < 0) return 0.0;
  if (schedule_step >= warmup_steps(config)) return 1.0;
  const double step = static_cast<double>(schedule_step);
  const double steps = static_cast<double>(warmup_steps(config));
  return config.warmup_type == Warmup::kLog ? 1.0 / std::log(steps) * std::log(step + 1)
                                            : step / steps;
}

double decay_fraction(const configs::SchedulerConfig& config, int64_t schedule_step) {
  const double left = static_cast<double>(config.total_num_steps - schedule_step);
  const double length = static_cast<double>(config.total_num_steps - warmup_steps(config));
  return std::max(0.0, left / std::max(1.0, length));
}

double cosine_ratio(const configs::SchedulerConfig& config, int64_t schedule_step) {
  if (schedule_step < warmup_steps(config)) {
    return config.warmup_min_ratio +
           warmup_fraction(config, schedule_step) * (1.0 - config.warmup_min_ratio);
  }
  const double done = static_cast<double>(schedule_step - warmup_steps(config) + 1);
  const double length = static_cast<double>(config.total_num_steps - warmup_steps(config));
  const double progress = std::min(1.0, done / std::max(1.0, length));
  const double share = (1.0 + std::cos(std::numbers::pi * progress)) / 2.0;
  return std::max(0.0, config.cos_min_ratio + (1.0 - config.cos_min_ratio) * share);
}

double interpolate_lr(const configs::SchedulerConfig& config, double share) {
  return config.warmup_min_lr + (config.warmup_max_lr - config.warmup_min_lr) * share;
}

}  // namespace

double one_cycle_lr(const configs::OneCycleConfig& config, int64_t update) {
  if (in_cycle(config, update)) {
    return config.min_lr + (config.max_lr - config.min_lr) * cycle_position(config, update);
  }
  return config.min_lr / decay_divisor(config, config.decay_lr_rate, update);
}

std::array<double, 2> one_cycle_betas(const configs::OneCycleConfig& config, int64_t update) {
  ZEROTH_CHECK(config.cycle_momentum, "betas of a schedule that leaves them alone");
  if (update == 0) return {config.min_momentum, kSecondBeta};  // from before any schedule step
  if (in_cycle(config, update)) {
    const double range = config.max_momentum - config.min_momentum;
    return {config.max_momentum - range * cycle_position(config, update), kSecondBeta};
  }
  return {config.max_momentum * decay_divisor(config, config.decay_momentum_rate, update),
          kSecondBeta};
}

LrSchedule::LrSchedule(const configs::SchedulerConfig& config,
                       const configs::OptimizerConfig& optimizer)
    : config_(config), optimizer_lr_(optimizer.lr), optimizer_betas_(optimizer.betas) {
  const bool follows = config.kind == Kind::kHuggingFace &&
                       config.hf.type == configs::HfSchedule::Type::kReduceOnPlateau;
  if (follows) plateau_.emplace(config.hf.plateau, optimizer.lr);
}

double LrSchedule::at(int64_t applied_updates) const {
  ZEROTH_CHECK(applied_updates >= 0, "update {} of a schedule", applied_updates);
  const int64_t schedule_step = applied_updates - 1;
  switch (config_.kind) {
    case Kind::kConstant:
      return optimizer_lr_;
    case Kind::kWarmupLr:
      return interpolate_lr(config_, warmup_fraction(config_, schedule_step));
    case Kind::kWarmupDecayLr:
      return interpolate_lr(config_, schedule_step < warmup_steps(config_)
                                         ? warmup_fraction(config_, schedule_step)
                                         : decay_fraction(config_, schedule_step));
    case Kind::kWarmupCosineLr:
      return schedule_step < 0 ? 0.0 : optimizer_lr_ * cosine_ratio(config_, schedule_step);
    case Kind::kOneCycle:
      return one_cycle_lr(config_.one_cycle, applied_updates);
    case Kind::kLrRangeTest:
      return range_test_lr(config_.range_test, applied_updates);
    case Kind::kHuggingFace:
      return plateau_ ? plateau_->rate() : hf_lr(config_.hf, optimizer_lr_, applied_updates);
  }
  throw InternalError(fmt::format("schedule kind {}", static_cast<int>(config_.kind)));
}

std::array<double, 2> LrSchedule::betas_at(int64_t applied_updates) const {
  ZEROTH_CHECK(applied_updates >= 0, "update {} of a schedule", applied_updates);
  const bool cycles = config_.kind == Kind::kOneCycle && config_.one_cycle.cycle_momentum;
  return cycles ? one_cycle_betas(config_.one_cycle, applied_updates) : optimizer_betas_;
}

void LrSchedule::record_evaluation(double loss) {
  if (plateau_) plateau_->record_evaluation(loss);
}

std::optional<Plateau::PlateauState> LrSchedule::state() const {
  return plateau_ ? std::optional(plateau_->state()) : std::nullopt;
}

void LrSchedule::restore(const std::optional<Plateau::PlateauState>& state) {
  if (plateau_ && state) plateau_->restore(*state);
}

}  // namespace zeroth::optim
