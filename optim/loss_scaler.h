// LossScaler computes the factor that lifts fp16 gradients out of the underflow range. Pure: the
// engine multiplies.
#pragma once

#include <cstdint>

#include "configs/config.h"

namespace zeroth::optim {

// A LossScaler is static when static_scale is not 0, otherwise dynamic: it doubles after `window`
// clean steps and halves on an overflow once the hysteresis is used up. Every rank must report the
// same overflows.
class LossScaler {
 public:
  explicit LossScaler(const configs::LossScaleConfig& config);

  // ScaleState is what a checkpoint keeps of a scaler.
  struct ScaleState {
    double scale = 1;
    int64_t hysteresis_left = 1;
    int64_t step = 0;  // updates so far
    int64_t last_overflow = -1;
    bool operator==(const ScaleState&) const = default;
  };
  ScaleState state() const { return state_; }
  // Continues from another scaler's state. A static scale stays as configured.
  void restore(const ScaleState& state);

  // Returns the scale of the next step.
  double scale() const { return state_.scale; }

  // Records the result of a step with this scale. At the floor an overflow does not change the
  // scale.
  void update(bool overflow);

  // Returns whether a dynamic scale would not fall at one more overflow, the one at which DeepSpeed
  // ends the run. A caller that does the same must ask after an overflow and before update(true).
  bool at_floor() const;

 private:
  configs::LossScaleConfig config_;
  bool dynamic_;
  ScaleState state_;
};

// Returns the scaler of a run: its loss_scale for fp16, a static scale of 1 for the precisions that
// need none.
LossScaler make_loss_scaler(const configs::Config& config);

}  // namespace zeroth::optim
