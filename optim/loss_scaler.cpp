#include "optim/loss_scaler.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace zeroth::optim {

LossScaler::LossScaler(const configs::LossScaleConfig& config)
    : config_(config),
      dynamic_(config.static_scale == 0),
      state_{.scale = dynamic_ ? std::ldexp(1.0, config.initial_scale_power) : config.static_scale,
             .hysteresis_left = config.hysteresis} {
  ZEROTH_CHECK(std::isfinite(scale()) && scale() > 0, "loss scale {}", scale());
  ZEROTH_CHECK(!dynamic_ || (config.window > 0 && config.hysteresis > 0 && config.min_scale > 0),
               "loss scale window {}, hysteresis {}, floor {}", config.window, config.hysteresis,
               config.min_scale);
}

void LossScaler::restore(const ScaleState& state) {
  if (dynamic_) state_ = state;
}

void LossScaler::update(bool overflow) {
  if (!dynamic_) return;
  if (overflow) {
    if (state_.hysteresis_left > 1) {
      --state_.hysteresis_left;
    } else {
      state_.scale = std::max(state_.scale / 2, config_.min_scale);
    }
    state_.last_overflow = state_.step;
  } else {
    const int64_t finite_steps = state_.step - state_.last_overflow - 1;
    const bool doubles = finite_steps != 0 && finite_steps % config_.window == 0;
    if (doubles) state_.scale *= 2;
    if (doubles || config_.consecutive_hysteresis) state_.hysteresis_left = config_.hysteresis;
  }
  ++state_.step;
}

bool LossScaler::at_floor() const {
  return dynamic_ && state_.hysteresis_left == 1 && state_.scale == config_.min_scale;
}

LossScaler make_loss_scaler(const configs::Config& config) {
  return LossScaler(config.scales_loss() ? config.loss_scale
                                         : configs::LossScaleConfig{.static_scale = 1});
}

}  // namespace zeroth::optim
