#include "optim/plateau.h"

#include <algorithm>
#include <limits>

namespace zeroth::optim {

Plateau::Plateau(const configs::PlateauConfig& config, double lr)
    : config_(config),
      rate_(lr),
      best_(std::numeric_limits<double>::infinity() * (config.greater_is_better ? -1 : 1)) {}

void Plateau::evaluated(double metric) {
  if (is_better(metric)) {
    best_ = metric;
    bad_ = 0;
  } else {
    ++bad_;
  }
  if (cooldown_ > 0) {
    --cooldown_;
    bad_ = 0;
  }
  if (bad_ <= config_.patience) return;
  reduce();
  cooldown_ = config_.cooldown;
  bad_ = 0;
}

bool Plateau::is_better(double metric) const {
  const double threshold = config_.threshold;
  if (config_.greater_is_better) {
    return metric > (config_.relative ? best_ * (threshold + 1.0) : best_ + threshold);
  }
  return metric < (config_.relative ? best_ * (1.0 - threshold) : best_ - threshold);
}

void Plateau::reduce() {
  const double reduced = std::max(rate_ * config_.factor, config_.min_lr);
  if (rate_ - reduced > config_.eps) rate_ = reduced;
}

}  // namespace zeroth::optim
