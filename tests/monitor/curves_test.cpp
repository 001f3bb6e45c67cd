#include "monitor/curves.h"

#include <doctest/doctest.h>

#include <cmath>

namespace zeroth::monitor {

TEST_CASE("as long as there is room, every step is a point") {
  Curves curves({"loss", "lr"}, 4);
  for (int step = 1; step <= 4; ++step) curves.add(step, {1.0 * step, 0.5});
  CHECK(curves.xs() == std::vector<int64_t>{1, 2, 3, 4});
  CHECK(curves.value(0, 2) == 3);
  CHECK(curves.value(1, 3) == 0.5);
  CHECK(curves.steps_per_point() == 1);
}

TEST_CASE("beyond it neighbours become their mean, and later steps join in") {
  Curves curves({"loss"}, 4);
  for (int step = 1; step <= 7; ++step) curves.add(step, {1.0 * step});
  CHECK(curves.steps_per_point() == 2);
  CHECK(curves.xs() == std::vector<int64_t>{2, 4, 6, 7});
  CHECK(curves.value(0, 0) == 1.5);
  CHECK(curves.value(0, 2) == 5.5);
  CHECK(curves.value(0, 3) == 7);
  for (int step = 8; step <= 9; ++step) curves.add(step, {1.0 * step});
  CHECK(curves.steps_per_point() == 4);
  CHECK(curves.xs() == std::vector<int64_t>{4, 8, 9});
  CHECK(curves.value(0, 1) == 6.5);
}

TEST_CASE("a long run stays small") {
  Curves curves({"loss"}, 16);
  for (int step = 1; step <= 100'000; ++step) curves.add(step, {1});
  CHECK(curves.size() <= 16);
  CHECK(curves.size() >= 8);
  CHECK(curves.xs().back() == 100'000);
}

TEST_CASE("what is not finite enters no mean, and a point without a number is a NaN") {
  Curves curves({"loss"}, 2);
  curves.add(1, {NAN});
  CHECK(std::isnan(curves.value(0, 0)));
  curves.add(2, {4});
  curves.add(3, {INFINITY});
  CHECK(curves.value(0, 0) == 4);
  CHECK(std::isnan(curves.value(0, 1)));
}

}  // namespace zeroth::monitor
