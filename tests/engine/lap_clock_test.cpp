#include "engine/lap_clock.h"

#include <doctest/doctest.h>

#include <chrono>
#include <thread>

#include "comm/call.h"

namespace zeroth::engine {
namespace {

void pass(double milliseconds) {
  std::this_thread::sleep_for(std::chrono::duration<double, std::milli>(milliseconds));
}

}  // namespace

TEST_CASE("laps tell the time since the mark before, and what is between steps belongs to nobody") {
  using comm::Stopwatch;  // around each lap, so that a busy machine lengthens both
  LapClock clock(c10::kCPU);
  const Stopwatch around_first;
  clock.begin();
  pass(20);
  const Stopwatch around_second;
  clock.lap(3);
  const double first = around_first.seconds();
  clock.lap(1);
  const double second = around_second.seconds();
  pass(20);
  const Stopwatch around_third;
  clock.begin();
  pass(10);
  clock.lap(3);
  const double third = around_third.seconds();
  const auto laps = clock.take();
  REQUIRE(laps.size() == 3);
  CHECK(laps[0].part == 3);
  CHECK(laps[0].seconds >= 0.02);
  CHECK(laps[0].seconds <= first);
  CHECK(laps[1].part == 1);
  CHECK(laps[1].seconds <= second);
  CHECK(laps[2].seconds >= 0.01);
  CHECK(laps[2].seconds <= third);
  CHECK(clock.take().empty());
}

TEST_CASE("what is counted elsewhere belongs to no lap") {
  LapClock clock(c10::kCPU);
  clock.begin();
  clock.lap(0, 100);
  clock.lap(1);
  const auto laps = clock.take();
  REQUIRE(laps.size() == 2);
  CHECK(laps[0].seconds < -50);
  CHECK(laps[1].seconds >= 0);
}

TEST_CASE("a lap may start before what was taken and end after it") {
  LapClock clock(c10::kCPU);
  clock.begin();
  clock.lap(0);
  CHECK(clock.take().size() == 1);
  pass(10);
  clock.lap(1);
  const auto laps = clock.take();
  REQUIRE(laps.size() == 1);
  CHECK(laps[0].seconds >= 0.01);
}

}  // namespace zeroth::engine
