#include "optim/schedule/lr_schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/error.h"
#include "optim/schedule/hf_schedule.h"
#include "optim/schedule/one_cycle.h"

namespace zeroth::optim {

using Kind = configs::SchedulerConfig::Kind;
using Warmup = configs::SchedulerConfig::Warmup;

LrSchedule::LrSchedule(const configs::SchedulerConfig& config,
                       const configs::OptimizerConfig& optimizer)
    : config_(config),
      optimizer_lr_(optimizer.lr),
      optimizer_betas_(optimizer.betas),
      warmup_steps_(std::max<int64_t>(2, config.warmup_num_steps)) {
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
      return interpolate_lr(warmup_fraction(schedule_step));
    case Kind::kWarmupDecayLr:
      return interpolate_lr(schedule_step < warmup_steps_ ? warmup_fraction(schedule_step)
                                                          : decay_fraction(schedule_step));
    case Kind::kWarmupCosineLr:
      return schedule_step < 0 ? 0.0 : optimizer_lr_ * cosine_ratio(schedule_step);
    case Kind::kOneCycle:
      return one_cycle_lr(config_.one_cycle, applied_updates);
    case Kind::kLrRangeTest:
      return range_test_lr(applied_updates);
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

double LrSchedule::range_test_lr(int64_t applied_updates) const {
  const configs::LrRangeTestConfig& test = config_.range_test;
  const double interval =
      static_cast<double>(applied_updates) / static_cast<double>(test.step_size);
  return test.min_lr * (1 + test.step_rate * (test.staircase ? std::floor(interval) : interval));
}

// Returns a fraction that is 0 at the first schedule step and 1 from the end of the warm-up on.
double LrSchedule::warmup_fraction(int64_t schedule_step) const {
  if (schedule_step < 0) return 0.0;
  if (schedule_step >= warmup_steps_) return 1.0;
  const double step = static_cast<double>(schedule_step);
  const double steps = static_cast<double>(warmup_steps_);
  return config_.warmup_type == Warmup::kLog ? 1.0 / std::log(steps) * std::log(step + 1)
                                             : step / steps;
}

double LrSchedule::decay_fraction(int64_t schedule_step) const {
  const double left = static_cast<double>(config_.total_num_steps - schedule_step);
  const double length = static_cast<double>(config_.total_num_steps - warmup_steps_);
  return std::max(0.0, left / std::max(1.0, length));
}

double LrSchedule::cosine_ratio(int64_t schedule_step) const {
  if (schedule_step < warmup_steps_) {
    return config_.warmup_min_ratio +
           warmup_fraction(schedule_step) * (1.0 - config_.warmup_min_ratio);
  }
  const double done = static_cast<double>(schedule_step - warmup_steps_ + 1);
  const double length = static_cast<double>(config_.total_num_steps - warmup_steps_);
  const double progress = std::min(1.0, done / std::max(1.0, length));
  const double share = (1.0 + std::cos(std::numbers::pi * progress)) / 2.0;
  return std::max(0.0, config_.cos_min_ratio + (1.0 - config_.cos_min_ratio) * share);
}

double LrSchedule::interpolate_lr(double share) const {
  return config_.warmup_min_lr + (config_.warmup_max_lr - config_.warmup_min_lr) * share;
}

}  // namespace zeroth::optim
