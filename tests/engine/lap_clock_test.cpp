#include "engine/lap_clock.h"

#include <doctest/doctest.h>

#include <chrono>
#include <thread>

namespace zeroth::engine {
namespace {

void pass(double milliseconds) {
  std::this_thread::sleep_for(std::chrono::duration<double, std::milli>(milliseconds));
}

}  // namespace

TEST_CASE("laps tell the time since the mark before, and what is between steps belongs to nobody") {
  LapClock clock(c10::kCPU);
  clock.begin();
  pass(20);
  clock.lap(3);
  clock.lap(1);
  pass(200);
  clock.begin();
  pass(10);
  clock.lap(3);
  const auto laps = clock.take();
  REQUIRE(laps.size() == 3);
  CHECK(laps[0].part == 3);
  CHECK(laps[0].seconds >= 0.02);
  CHECK(laps[0].seconds < 0.2);
  CHECK(laps[1].part == 1);
  CHECK(laps[1].seconds < 0.02);
  CHECK(laps[2].seconds >= 0.01);
  CHECK(laps[2].seconds < 0.2);
  CHECK(clock.take().empty());
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
