#include "engine/step/schedule.h"

#include <doctest/doctest.h>

namespace zeroth::engine::schedule_test {

TEST_CASE("without recompute one segment keeps everything") {
  CHECK((plan_segments(5, {}) == std::vector<Segment>{{0, 5, false}}));
}

TEST_CASE("every N-th block keeps only its input, but for the last of the chain") {
  const std::vector<Segment> all = plan_segments(3, {.every_nth_block = 1});
  CHECK((all == std::vector<Segment>{{0, 1, true}, {1, 2, true}, {2, 3, false}}));
  const std::vector<Segment> second = plan_segments(4, {.every_nth_block = 2});
  CHECK(
      (second == std::vector<Segment>{{0, 1, false}, {1, 2, true}, {2, 3, false}, {3, 4, false}}));
}

TEST_CASE("K kept inputs are evenly spaced and cover the chain") {
  CHECK((plan_segments(6, {.number_checkpoints = 3}) ==
         std::vector<Segment>{{0, 2, true}, {2, 4, true}, {4, 6, false}}));
  CHECK((plan_segments(3, {.number_checkpoints = 50}).size() == 3));
  for (const int64_t count : {1, 2, 3, 4, 5, 6, 7}) {
    size_t next = 0;
    for (const Segment& segment : plan_segments(7, {.number_checkpoints = count})) {
      CHECK(segment.first == next);
      CHECK(segment.end > segment.first);
      next = segment.end;
    }
    CHECK(next == 7);
  }
}

TEST_CASE("visits are the blocks in the order in which micro-batches gather them") {
  CHECK((block_accesses(plan_segments(3, {}), 1) == std::vector<size_t>{0, 1, 2, 2, 1, 0}));
  CHECK((block_accesses(plan_segments(2, {}), 2) == std::vector<size_t>{0, 1, 1, 0, 0, 1, 1, 0}));
  CHECK((block_accesses(plan_segments(3, {.every_nth_block = 1}), 1) ==
         std::vector<size_t>{0, 1, 2, 2, 1, 0}));
  // Segment {0, 1, 2} runs forward again up to its last block, whose forward shares the visit of
  // its backward.
  CHECK((block_accesses(plan_segments(6, {.number_checkpoints = 2}), 1) ==
         std::vector<size_t>{0, 1, 2, 3, 4, 5, 5, 4, 3, 0, 1, 2, 1, 0}));
}

}  // namespace zeroth::engine::schedule_test
