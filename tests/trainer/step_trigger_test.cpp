#include "trainer/step_trigger.h"

#include <doctest/doctest.h>

#include <vector>

namespace zeroth::trainer::step_trigger_test {
namespace {

using Mode = Interval::Mode;

std::vector<int64_t> steps_of(const Interval& interval, const RunLength& length) {
  const StepTrigger trigger(interval, length);
  std::vector<int64_t> steps;
  for (int64_t step = 1; step <= length.steps; ++step) {
    if (trigger.is_due(step)) steps.push_back(step);
  }
  CHECK(trigger.num_before_end() == std::ssize(steps) - (trigger.is_due(length.steps) ? 1 : 0));
  return steps;
}

}  // namespace

TEST_CASE("a number of steps counts them, and one below 1 is a part of the run, rounded up") {
  CHECK(steps_of({Mode::kSteps, 4}, {.steps = 12}) == std::vector<int64_t>{4, 8, 12});
  CHECK(steps_of({Mode::kSteps, 0.3}, {.steps = 12}) == std::vector<int64_t>{4, 8, 12});
  CHECK(steps_of({Mode::kSteps, 0.001}, {.steps = 3}) == std::vector<int64_t>{1, 2, 3});
  CHECK(steps_of({Mode::kSteps, 500}, {.steps = 12}).empty());
  CHECK(StepTrigger({Mode::kSteps, 0.3}, {.steps = 12}).interval_steps() == 4);
}

TEST_CASE("an epoch ends with the step that takes its last sample") {
  const RunLength even{.steps = 6, .global_batch = 8, .epoch_positions = 16};
  CHECK(steps_of({Mode::kEpochs}, even) == std::vector<int64_t>{2, 4, 6});
  // 40 samples in steps of 16: the third step ends one epoch and begins the next.
  const RunLength ragged{.steps = 5, .global_batch = 16, .epoch_positions = 40};
  CHECK(steps_of({Mode::kEpochs}, ragged) == std::vector<int64_t>{3, 5});
}

TEST_CASE("nothing happens where nobody asks, or where an evaluation decides") {
  const RunLength length{.steps = 6, .global_batch = 8, .epoch_positions = 16};
  CHECK(steps_of({}, length).empty());
  CHECK(steps_of({Mode::kBest}, length).empty());
}

TEST_CASE("a delay is counted in steps, or in epochs") {
  const StepTrigger steps({Mode::kSteps, 2, 5}, {.steps = 8});
  CHECK_FALSE(steps.is_due(4));
  CHECK(steps.is_due(6));
  const StepTrigger epochs({Mode::kEpochs, 0, 2},
                           {.steps = 6, .global_batch = 8, .epoch_positions = 16});
  CHECK_FALSE(epochs.is_due(2));
  CHECK(epochs.is_due(4));
}

TEST_CASE("epochs end where they do although batches were of another size before") {
  // Two steps of 12 came before those of 8: 24 positions behind step 2.
  const RunLength length{.steps = 6, .global_batch = 8, .epoch_positions = 40, .offset = 8};
  const StepTrigger trigger({Mode::kEpochs}, length);
  for (const int64_t step : {2, 3, 5, 6}) CHECK_FALSE(trigger.is_due(step));
  CHECK(trigger.is_due(4));
}

}  // namespace zeroth::trainer::step_trigger_test
