#include "trainer/occasions.h"

#include <doctest/doctest.h>

#include <vector>

namespace zeroth::trainer {
namespace {

using At = Cadence::At;

std::vector<int64_t> steps_of(const Cadence& cadence, const RunLength& length) {
  const Occasions occasions(cadence, length);
  std::vector<int64_t> steps;
  for (int64_t step = 1; step <= length.steps; ++step) {
    if (occasions.at(step)) steps.push_back(step);
  }
  CHECK(occasions.on_the_way() == std::ssize(steps) - (occasions.at(length.steps) ? 1 : 0));
  return steps;
}

}  // namespace

TEST_CASE("a number of steps counts them, and one below 1 is a part of the run, rounded up") {
  CHECK(steps_of({At::kSteps, 4}, {.steps = 12}) == std::vector<int64_t>{4, 8, 12});
  CHECK(steps_of({At::kSteps, 0.3}, {.steps = 12}) == std::vector<int64_t>{4, 8, 12});
  CHECK(steps_of({At::kSteps, 0.001}, {.steps = 3}) == std::vector<int64_t>{1, 2, 3});
  CHECK(steps_of({At::kSteps, 500}, {.steps = 12}).empty());
  CHECK(Occasions({At::kSteps, 0.3}, {.steps = 12}).every() == 4);
}

TEST_CASE("an epoch ends with the step that takes its last sample") {
  const RunLength even{.steps = 6, .global_batch = 8, .epoch_positions = 16};
  CHECK(steps_of({At::kEpochs}, even) == std::vector<int64_t>{2, 4, 6});
  // 40 samples in steps of 16: the third step ends one epoch and begins the next.
  const RunLength ragged{.steps = 5, .global_batch = 16, .epoch_positions = 40};
  CHECK(steps_of({At::kEpochs}, ragged) == std::vector<int64_t>{3, 5});
}

TEST_CASE("nothing happens where nobody asks, or where an evaluation decides") {
  const RunLength length{.steps = 6, .global_batch = 8, .epoch_positions = 16};
  CHECK(steps_of({}, length).empty());
  CHECK(steps_of({At::kBest}, length).empty());
}

TEST_CASE("a delay is counted in steps, or in epochs") {
  const Occasions steps({At::kSteps, 2, 5}, {.steps = 8});
  CHECK_FALSE(steps.at(4));
  CHECK(steps.at(6));
  const Occasions epochs({At::kEpochs, 0, 2},
                         {.steps = 6, .global_batch = 8, .epoch_positions = 16});
  CHECK_FALSE(epochs.at(2));
  CHECK(epochs.at(4));
}

TEST_CASE("epochs end where they do although batches were of another size before") {
  // Two steps of 12 came before those of 8: 24 positions behind step 2.
  const RunLength length{.steps = 6, .global_batch = 8, .epoch_positions = 40, .offset = 8};
  const Occasions occasions({At::kEpochs}, length);
  for (const int64_t step : {2, 3, 5, 6}) CHECK_FALSE(occasions.at(step));
  CHECK(occasions.at(4));
}

}  // namespace zeroth::trainer
