#include "optim/schedule/plateau.h"

#include <algorithm>
#include <limits>

namespace zeroth::optim {

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
  reduce();
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

void Plateau::reduce() {
  const double reduced = std::max(state_.rate * config_.factor, config_.min_lr);
  if (state_.rate - reduced > config_.eps) state_.rate = reduced;
}

}  // namespace zeroth::optim
