#include "engine/step/step_profiler.h"

#include <doctest/doctest.h>

#include <chrono>
#include <thread>

#include "base/machine/timer.h"

namespace zeroth::engine::phase_timer_test {
namespace {

void pass(double milliseconds) {
  std::this_thread::sleep_for(std::chrono::duration<double, std::milli>(milliseconds));
}

}  // namespace

TEST_CASE("laps tell the time since the mark before, and what is between steps belongs to nobody") {
  PhaseTimer clock(c10::kCPU);
  const Timer around_first;  // around each lap, so that a busy machine lengthens both
  clock.begin();
  pass(20);
  const Timer around_second;
  clock.end_phase(3);
  const double first = around_first.seconds();
  clock.end_phase(1);
  const double second = around_second.seconds();
  pass(20);
  const Timer around_third;
  clock.begin();
  pass(10);
  clock.end_phase(3);
  const double third = around_third.seconds();
  const auto laps = clock.take_finished();
  REQUIRE(laps.size() == 3);
  CHECK(laps[0].part == 3);
  CHECK(laps[0].seconds >= 0.02);
  CHECK(laps[0].seconds <= first);
  CHECK(laps[1].part == 1);
  CHECK(laps[1].seconds <= second);
  CHECK(laps[2].seconds >= 0.01);
  CHECK(laps[2].seconds <= third);
  CHECK(clock.take_finished().empty());
}

TEST_CASE("what is counted elsewhere belongs to no lap") {
  PhaseTimer clock(c10::kCPU);
  clock.begin();
  clock.end_phase(0, 100);
  clock.end_phase(1);
  const auto laps = clock.take_finished();
  REQUIRE(laps.size() == 2);
  CHECK(laps[0].seconds < -50);
  CHECK(laps[1].seconds >= 0);
}

TEST_CASE("a lap may start before what was taken and end after it") {
  PhaseTimer clock(c10::kCPU);
  clock.begin();
  clock.end_phase(0);
  CHECK(clock.take_finished().size() == 1);
  pass(10);
  clock.end_phase(1);
  const auto laps = clock.take_finished();
  REQUIRE(laps.size() == 1);
  CHECK(laps[0].seconds >= 0.01);
}

}  // namespace zeroth::engine::phase_timer_test
