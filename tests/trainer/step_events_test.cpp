#include "trainer/report/step_events.h"

#include <doctest/doctest.h>

#include "tests/trainer/rows.h"

namespace zeroth::trainer {
namespace {

std::vector<std::string> tags(const std::vector<monitor::Event>& events) {
  std::vector<std::string> names;
  for (const auto& event : events) names.push_back(event.tag);
  return names;
}

}  // namespace

TEST_CASE("a step's events have DeepSpeed's tags, over samples") {
  const auto events = step_events(sample_row(3), {}, 24);
  CHECK(tags(events) == std::vector<std::string>{"Train/Samples/train_loss", "Train/Samples/lr",
                                                 "Train/Samples/grad_norm"});
  CHECK(events[0].value == 2.5);
  CHECK(events[1].value == 5e-5);
  for (const auto& event : events) CHECK(event.samples == 24);
}

TEST_CASE("the loss scale belongs to fp16, times to wall_clock_breakdown and flops_profiler") {
  configs::Config config;
  config.precision = configs::Precision::kFp16;
  CHECK(step_events(sample_row(3), config, 1).back().tag == "Train/Samples/loss_scale");
  config.precision = configs::Precision::kFp32;
  config.wall_clock_breakdown = true;
  const auto events = step_events(sample_row(3), config, 1);
  REQUIRE(events.size() == 8);
  CHECK(events[3].tag == "Train/Samples/elapsed_time_ms_forward");
  CHECK(events[3].value == doctest::Approx(200));
  CHECK(events[4].tag == "Train/Samples/elapsed_time_ms_backward");
  CHECK(events[4].value == doctest::Approx(280));
  CHECK(events[5].tag == "Train/Samples/elapsed_time_ms_backward_inner");
  CHECK(events[6].tag == "Train/Samples/elapsed_time_ms_backward_allreduce");
  CHECK(events[6].value == doctest::Approx(30));
  CHECK(events[7].tag == "Train/Samples/elapsed_time_ms_step");
  CHECK(events[7].value == doctest::Approx(4));
}

TEST_CASE("an evaluation is one event") {
  const auto events = eval_events({.step = 2, .eval_loss = 1.5}, 16);
  REQUIRE(events.size() == 1);
  CHECK(events[0].tag == "Train/Samples/eval_loss");
  CHECK(events[0].value == 1.5);
}

}  // namespace zeroth::trainer
