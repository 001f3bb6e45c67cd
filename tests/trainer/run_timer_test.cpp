#include "trainer/report/metrics.h"

#include <doctest/doctest.h>

#include <chrono>

namespace zeroth::trainer::run_timer_test {

TEST_CASE("time counts from the launcher's start") {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  const double epoch = std::chrono::duration<double>(now).count();
  const RunTimer clock(epoch - 100);
  CHECK(clock.seconds() == doctest::Approx(100).epsilon(0.01));
  const double first = clock.seconds();
  CHECK(clock.seconds() >= first);
}

TEST_CASE("without a launcher time counts from the start of the process") {
  const double age = RunTimer(std::nullopt).seconds();
  CHECK(age >= 0);
  CHECK(age < 600);
}

}  // namespace zeroth::trainer::run_timer_test
