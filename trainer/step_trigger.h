// The steps of one run at which a periodic action is due.
#pragma once

#include <cstdint>

#include "trainer/flags/interval.h"

namespace zeroth::trainer {

struct RunLength {
  int64_t steps = 0;
  int64_t global_batch = 1;
  int64_t epoch_positions = 0;  // as in Samples; 0: unknown
  int64_t offset = 0;           // as in RunPlan
};

class StepTrigger {
 public:
  StepTrigger(const Interval& interval, const RunLength& length);

  // Returns whether the action is due after `step` steps, the last one included. An epoch ends with
  // the step that consumes its last sample. Returns false if evaluations decide
  // (Interval::Mode::kBest).
  bool is_due(int64_t step) const;
  // Returns how often the action is due before the last step.
  int64_t num_before_end() const;
  // Returns the interval in steps, of a ratio too; 0 if steps do not count.
  int64_t interval_steps() const { return every_; }

 private:
  int64_t epochs(int64_t step) const {
    return (step * length_.global_batch + length_.offset) / length_.epoch_positions;
  }

  Interval interval_;
  RunLength length_;
  int64_t every_ = 0;
};

}  // namespace zeroth::trainer
