// The factor that lifts fp16 gradients off the underflow range. Pure: the engine multiplies.
#pragma once

#include <cstdint>

#include "configs/config.h"

namespace zeroth::optim {

// Static when static_scale is not 0, otherwise dynamic: doubles after `window` clean steps, halves
// on an overflow once the hysteresis is used up. Every rank must report the same overflows.
class LossScaler {
 public:
  explicit LossScaler(const configs::LossScaleConfig& config);

  // The scale of the next step.
  double scale() const { return scale_; }

  // Tells what came of a step with this scale. At the floor an overflow leaves the scale as it is.
  void update(bool overflow);

  // Whether a dynamic scale would fall no further at one more overflow, the one at which DeepSpeed
  // ends the run. To do the same, ask after an overflow and before update(true).
  bool at_floor() const;

 private:
  void overflowed();
  void stayed_finite();

  configs::LossScaleConfig config_;
  bool dynamic_;
  double scale_;
  int64_t hysteresis_left_;
  int64_t step_ = 0;
  int64_t last_overflow_ = -1;
};

// The scaler of a run: `config`'s for fp16, a static scale of 1 for the precisions that need none.
LossScaler make_loss_scaler(configs::Precision precision, const configs::LossScaleConfig& config);

}  // namespace zeroth::optim
