#include "trainer/step_trigger.h"

#include <algorithm>
#include <cmath>

namespace zeroth::trainer {

using Mode = Interval::Mode;

StepTrigger::StepTrigger(const Interval& interval, const RunLength& length)
    : interval_(interval), length_(length) {
  if (interval.mode != Mode::kSteps) return;
  const bool ratio = interval.every < 1;
  const double steps =
      ratio ? std::ceil(static_cast<double>(length.steps) * interval.every) : interval.every;
  every_ = std::max<int64_t>(1, static_cast<int64_t>(steps));
}

bool StepTrigger::is_due(int64_t step) const {
  if (interval_.mode == Mode::kSteps) {
    return step % every_ == 0 && interval_.from <= static_cast<double>(step);
  }
  if (interval_.mode != Mode::kEpochs || length_.epoch_positions == 0) return false;
  const int64_t done = epochs(step);
  return done > epochs(step - 1) && interval_.from <= static_cast<double>(done);
}

int64_t StepTrigger::num_before_end() const {
  const int64_t before_end = std::max<int64_t>(0, length_.steps - 1);
  if (interval_.mode == Mode::kSteps) return before_end / every_;
  return interval_.mode == Mode::kEpochs && length_.epoch_positions > 0 ? epochs(before_end) : 0;
}

}  // namespace zeroth::trainer
