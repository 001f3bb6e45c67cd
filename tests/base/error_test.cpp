#include "base/error.h"

#include <doctest/doctest.h>

namespace zeroth::error_test {

TEST_CASE("an error's message is formatted") {
  CHECK_THROWS_WITH_AS(throw Error("{} has {} rows, expected {}", "x", 3, 4),
                       "x has 3 rows, expected 4", Error);
}

TEST_CASE("an error's ready-made message may hold braces") {
  CHECK_THROWS_WITH_AS(throw Error(std::string("{\"a\": 1}")), "{\"a\": 1}", Error);
}

TEST_CASE("a failed check names the place, the expression and the operands") {
  const int left = 1;
  try {
    ZEROTH_CHECK(left == 2, "left {}, right {}", left, 2);
    FAIL("the check passed");
  } catch (const InternalError& error) {
    const std::string message = error.what();
    CHECK(message.find("error_test.cpp") != std::string::npos);
    CHECK(message.find("left == 2") != std::string::npos);
    CHECK(message.find("left 1, right 2") != std::string::npos);
  }
}

TEST_CASE("a check that holds does nothing") {
  CHECK_NOTHROW(ZEROTH_CHECK(true, "never"));
}

}  // namespace zeroth::error_test
