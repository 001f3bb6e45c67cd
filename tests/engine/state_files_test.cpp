#include "engine/state/state_files.h"

#include <doctest/doctest.h>

#include <limits>

#include "base/error.h"

namespace zeroth::engine::state_files_test {
namespace {

RunCounters odd_counters() {
  return {.steps = 7,
          .applied_updates = 5,
          .nominal_divisor = 64,
          .loss_scale = {.scale = 0x1.8p-3, .hysteresis_left = 2, .step = 7, .last_overflow = -1},
          .plateau = optim::Plateau::PlateauState{.rate = 0x1.1p-9,
                                                  .best = -std::numeric_limits<double>::infinity(),
                                                  .num_bad = 2,
                                                  .cooldown = 1},
          .skips = {.in_a_row = 1,
                    .first_step = 7,
                    .gradient = "block layers.3",
                    .in_one = true,
                    .output = "an \"output\""}};
}

}  // namespace

TEST_CASE("counters come back as they were") {
  CHECK(from_counters(to_counters(odd_counters())) == odd_counters());
  RunCounters without = odd_counters();
  without.plateau.reset();
  CHECK(from_counters(to_counters(without)) == without);
}

TEST_CASE("a counter that is not there, or of another kind, is named") {
  checkpoint::Counters counters = to_counters(odd_counters());
  counters["steps"] = std::string("7");
  CHECK_THROWS_WITH_AS(from_counters(counters), "the counter steps has the wrong type",
                       checkpoint::CorruptCheckpoint);
  counters.erase("steps");
  CHECK_THROWS_WITH_AS(from_counters(counters), "the counter steps is missing",
                       checkpoint::CorruptCheckpoint);
}

TEST_CASE("a piece is the range of a whole tensor, under the file's name for it") {
  const StateSlice piece = {.parameter = "layers.3.w",
                            .state = "exp_avg",
                            .dtype = torch::kBFloat16,
                            .box = TensorSlice::full({4, 6}),
                            .begin = 5,
                            .end = 17};
  const checkpoint::TensorChunk stored =
      stored_piece(piece, [](const std::string& name) { return "model." + name; });
  CHECK(checkpoint::chunk_key(stored) == "model.layers.3.w|exp_avg|0:4,0:6|5:17");
  CHECK(stored.dtype == "BF16");
  CHECK(stored.bytes() == 24);
}

TEST_CASE("where ranks share a layer it is a range of a box") {
  const StateSlice piece = {.parameter = "w",
                            .state = "master",
                            .dtype = torch::kFloat32,
                            .box = {{4, 6}, {0, 3}, {4, 3}},
                            .begin = 2,
                            .end = 12};
  const auto own_name = [](const std::string& name) { return name; };
  CHECK(checkpoint::chunk_key(stored_piece(piece, own_name)) == "w|master|0:4,3:6|2:12");
}

}  // namespace zeroth::engine::state_files_test
