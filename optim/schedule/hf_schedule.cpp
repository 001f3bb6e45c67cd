#include "optim/schedule/hf_schedule.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include "base/error.h"

namespace zeroth::optim {
namespace {

using configs::HfSchedule;
using Type = HfSchedule::Type;
using Shape = HfSchedule::Shape;

double to_double(int64_t count) {
  return static_cast<double>(count);
}

// Returns the warm-up that all types share: a straight line from 0.
double linear_warmup(const HfSchedule& schedule, int64_t update) {
  return to_double(update) / to_double(std::max<int64_t>(1, schedule.warmup_steps));
}

// Returns the number of updates after the warm-up, at least 1.
double decay_updates(const HfSchedule& schedule) {
  return to_double(std::max<int64_t>(1, schedule.total_steps - schedule.warmup_steps));
}

// Returns the fraction of the way from the end of the warm-up to the end of the run, where cosines
// stay; transformers' would rise again.
double progress(const HfSchedule& schedule, int64_t update) {
  return std::min(1.0, to_double(update - schedule.warmup_steps) / decay_updates(schedule));
}

double linear(const HfSchedule& schedule, int64_t update) {
  return std::max(0.0, to_double(schedule.total_steps - update) / decay_updates(schedule));
}

// Returns a wave from 1 to 0 and back; num_cycles 0.5 is one descent.
double cosine_wave(const HfSchedule& schedule, double progress) {
  return 0.5 * (1.0 + std::cos(std::numbers::pi * schedule.num_cycles * 2.0 * progress));
}

double with_min_lr(const HfSchedule& schedule, double share) {
  return std::max(0.0, share * (1.0 - schedule.min_lr_rate) + schedule.min_lr_rate);
}

// Returns a factor between min_lr_rate and 1.
double cosine(const HfSchedule& schedule, double progress) {
  return with_min_lr(schedule, cosine_wave(schedule, progress));
}

double cosine_with_restarts(const HfSchedule& schedule, double progress) {
  if (progress >= 1.0) return 0.0;
  const double cycle_fraction = std::fmod(schedule.num_cycles * progress, 1.0);
  return std::max(0.0, 0.5 * (1.0 + std::cos(std::numbers::pi * cycle_fraction)));
}

double polynomial(const HfSchedule& schedule, double lr, int64_t update) {
  const int64_t length = schedule.total_steps - schedule.warmup_steps;
  if (update > schedule.total_steps || length <= 0) return schedule.lr_end / lr;
  const double left = 1 - to_double(update - schedule.warmup_steps) / to_double(length);
  return ((lr - schedule.lr_end) * std::pow(left, schedule.power) + schedule.lr_end) / lr;
}

double inverse_sqrt(const HfSchedule& schedule, int64_t update) {
  const int64_t shift = schedule.timescale - schedule.warmup_steps;
  return 1.0 / std::sqrt(to_double(update + shift) / to_double(schedule.timescale));
}

// Returns the factor of cosine_warmup_with_min_lr, whose warm-up ends one update earlier and does
// not begin at 0.
double cosine_warmup_with_min_lr(const HfSchedule& schedule, int64_t update) {
  if (update < schedule.warmup_steps) {
    const double warmup = to_double(schedule.warmup_steps);
    if (!schedule.warmup_lr_rate) return (to_double(update) + 1.0) / std::max(1.0, warmup);
    const double first = *schedule.warmup_lr_rate;
    return first + (1.0 - first) * to_double(update) / std::max(1.0, warmup - 1);
  }
  return cosine(schedule, progress(schedule, update + 1));
}

// Returns a factor that is 0 at the warm-up's beginning and 1 at its end.
double warmup_curve(Shape shape, double progress) {
  switch (shape) {
    case Shape::kLinear:
      return progress;
    case Shape::kCosine:
      return 0.5 * (1.0 - std::cos(std::numbers::pi * progress));
    case Shape::kOneMinusSqrt:
      return 1.0 - std::sqrt(1.0 - progress);
  }
  throw InternalError(fmt::format("shape {} of a warm-up", static_cast<int>(shape)));
}

double decay_curve(const HfSchedule& schedule, double progress) {
  switch (schedule.decay_shape) {
    case Shape::kLinear:
      return 1.0 - progress;
    case Shape::kCosine:
      return cosine_wave(schedule, progress);
    case Shape::kOneMinusSqrt:
      return 1.0 - std::sqrt(progress);
  }
  throw InternalError(fmt::format("shape {} of a decay", static_cast<int>(schedule.decay_shape)));
}

double warmup_stable_decay(const HfSchedule& schedule, int64_t update) {
  if (update < schedule.warmup_steps) {
    return with_min_lr(schedule,
                       warmup_curve(schedule.warmup_shape, linear_warmup(schedule, update)));
  }
  const int64_t decayed = update - schedule.warmup_steps - schedule.stable_steps;
  if (decayed < 0) return 1.0;
  if (decayed >= schedule.decay_steps) return schedule.min_lr_rate;
  const double progress =
      to_double(decayed) / to_double(std::max<int64_t>(1, schedule.decay_steps));
  return with_min_lr(schedule, decay_curve(schedule, progress));
}

double factor(const HfSchedule& schedule, double lr, int64_t update) {
  const bool warms_up = update < schedule.warmup_steps;
  switch (schedule.type) {
    case Type::kConstant:
      return 1.0;
    case Type::kCosineWarmupWithMinLr:
      return cosine_warmup_with_min_lr(schedule, update);
    case Type::kWarmupStableDecay:
      return warmup_stable_decay(schedule, update);
    case Type::kConstantWithWarmup:
      return warms_up ? linear_warmup(schedule, update) : 1.0;
    case Type::kLinear:
      return warms_up ? linear_warmup(schedule, update) : linear(schedule, update);
    case Type::kCosine:
    case Type::kCosineWithMinLr:
      return warms_up ? linear_warmup(schedule, update)
                      : cosine(schedule, progress(schedule, update));
    case Type::kCosineWithRestarts:
      return warms_up ? linear_warmup(schedule, update)
                      : cosine_with_restarts(schedule, progress(schedule, update));
    case Type::kPolynomial:
      return warms_up ? linear_warmup(schedule, update) : polynomial(schedule, lr, update);
    case Type::kInverseSqrt:
      return warms_up ? linear_warmup(schedule, update) : inverse_sqrt(schedule, update);
    case Type::kReduceOnPlateau:  // a Plateau
      break;
  }
  throw InternalError(fmt::format("schedule type {}", static_cast<int>(schedule.type)));
}

}  // namespace

double hf_lr(const configs::HfSchedule& schedule, double lr, int64_t update) {
  return lr * factor(schedule, lr, update);
}

Plateau::Plateau(const configs::PlateauConfig& config, double lr)
    : config_(config),
      state_{
          .rate = lr,
          .best = std::numeric_limits<double>::infinity() * (config.greater_is_better ? -1 : 1)} {}

void Plateau::record_evaluation(double metric) {
  if (is_better(metric)) {
    state_.best = metric;
    state_.num_bad = 0;
  } else {
    ++state_.num_bad;
  }
  if (state_.cooldown > 0) {
    --state_.cooldown;
    state_.num_bad = 0;
  }
  if (state_.num_bad <= config_.patience) return;
  const double reduced = std::max(state_.rate * config_.factor, config_.min_lr);
  if (state_.rate - reduced > config_.eps) state_.rate = reduced;
  state_.cooldown = config_.cooldown;
  state_.num_bad = 0;
}

bool Plateau::is_better(double metric) const {
  const double threshold = config_.threshold;
  if (config_.greater_is_better) {
    return metric > (config_.relative ? state_.best * (threshold + 1.0) : state_.best + threshold);
  }
  return metric < (config_.relative ? state_.best * (1.0 - threshold) : state_.best - threshold);
}

}  // namespace zeroth::optim
