#include "optim/loss_scaler.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace zeroth::optim {

LossScaler::LossScaler(const configs::LossScaleConfig& config)
    : config_(config),
      dynamic_(config.static_scale == 0),
      scale_(dynamic_ ? std::ldexp(1.0, config.initial_scale_power) : config.static_scale),
      hysteresis_left_(config.hysteresis) {
  ZEROTH_CHECK(std::isfinite(scale_) && scale_ > 0, "loss scale {}", scale_);
  ZEROTH_CHECK(!dynamic_ || (config.window > 0 && config.hysteresis > 0 && config.min_scale > 0),
               "loss scale window {}, hysteresis {}, floor {}", config.window, config.hysteresis,
               config.min_scale);
}

void LossScaler::update(bool overflow) {
  if (!dynamic_) return;
  overflow ? overflowed() : stayed_finite();
  ++step_;
}

bool LossScaler::at_floor() const {
  return dynamic_ && hysteresis_left_ == 1 && scale_ == config_.min_scale;
}

void LossScaler::overflowed() {
  if (hysteresis_left_ > 1) {
    --hysteresis_left_;
  } else {
    scale_ = std::max(scale_ / 2, config_.min_scale);
  }
  last_overflow_ = step_;
}

void LossScaler::stayed_finite() {
  if (config_.consecutive_hysteresis) hysteresis_left_ = config_.hysteresis;
  const int64_t clean_before = step_ - last_overflow_ - 1;
  if (clean_before == 0 || clean_before % config_.window != 0) return;
  hysteresis_left_ = config_.hysteresis;
  scale_ *= 2;
}

LossScaler make_loss_scaler(configs::Precision precision, const configs::LossScaleConfig& config) {
  const bool needs_scale = precision == configs::Precision::kFp16;
  return LossScaler(needs_scale ? config : configs::LossScaleConfig{.static_scale = 1});
}

}  // namespace zeroth::optim
