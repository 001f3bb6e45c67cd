#include "engine/step/schedule_check.h"

#include <doctest/doctest.h>

#include "tests/support/chain.h"

namespace zeroth::engine::schedule_check_test {
namespace {

using Schedule = configs::PipelineConfig::Schedule;

double one_each(PipeOpKind kind, int64_t) {
  return kind == PipeOpKind::kBackward ? 2 : 1;
}

}  // namespace

TEST_CASE("the bubble of 1F1B is (p - 1) / (m + p - 1)") {
  for (const int64_t ranks : {2, 4, 8}) {
    for (const int64_t micro_batches : {8, 32}) {
      const ScheduleCheck check =
          check_schedule(Schedule::k1F1B, {ranks, 1, micro_batches}, one_each);
      CHECK(check.bubble() == doctest::Approx(static_cast<double>(ranks - 1) /
                                              static_cast<double>(micro_batches + ranks - 1)));
      CHECK(check.busy == std::vector<double>(static_cast<size_t>(ranks),
                                              3.0 * static_cast<double>(micro_batches)));
    }
  }
}

TEST_CASE("the slowest stage sets the pace") {
  const auto slow_second = [](PipeOpKind kind, int64_t stage) {
    return one_each(kind, stage) * (stage == 1 ? 2 : 1);
  };
  const ScheduleCheck check = check_schedule(Schedule::kGPipe, {2, 1, 10}, slow_second);
  // The first forward, then all of the second stage's, then the first stage's last backward.
  CHECK(check.makespan == 1 + 10 * 6 + 2);
  CHECK(check.busy == std::vector<double>{30, 60});
}

TEST_CASE("a pipeline is described by its stages' blocks") {
  configs::Config config;
  config.batch.accumulation_steps = 4;
  const model::Blocks blocks = testing::make_chain({.vocab = 6, .hidden = 6, .layers = 4});
  CHECK(describe_pipeline(blocks, config, {}).empty());
  config.pipeline = {.stages = 2, .partition = "uniform"};
  CHECK(describe_pipeline(blocks, config, {1, 1, 1, 1, 1, 1}) ==
        "2 stages: embedding to layers.1 (120 trained parameters, 50 % of the time); layers.2 to "
        "head "
        "(120 trained parameters, 50 % of the time); predicted bubble 20 %");
}

}  // namespace zeroth::engine::schedule_check_test
