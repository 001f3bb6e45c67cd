#include "checkpoint/counters.h"

#include <doctest/doctest.h>

#include <limits>

namespace zeroth::checkpoint::counters_test {
namespace {

Counters engines() {
  return {{"steps", int64_t{8}},
          {"applied_updates", int64_t{7}},
          {"loss_scale.scale", 65536.0},
          {"loss_scale.step", int64_t{8}},
          {"loss_scale.last_overflow", int64_t{-1}},
          {"not_finite.in_one", int64_t{0}}};
}

std::string message(const std::string& key, const Counter& value) {
  Counters counters = engines();
  counters[key] = value;
  return validation_error(counters, 8);
}

}  // namespace

TEST_CASE("counters of an engine fit each other and the step") {
  CHECK(validation_error(engines(), 8).empty());
  CHECK(validation_error({}, 8).empty());
  CHECK(validation_error(engines(), 9) ==
        "counters.steps is 8, expected an integer in 9..9, as step is 9");
  CHECK(message("applied_updates", int64_t{9}) ==
        "counters.applied_updates is 9, expected an integer in 0..8, as step is 8");
  CHECK(message("applied_updates", std::numeric_limits<int64_t>::max())
            .starts_with("counters.applied_updates is 9223372036854775807, expected"));
  CHECK(message("applied_updates", std::string("7")) ==
        "counters.applied_updates is \"7\", expected an integer in 0..8, as step is 8");
  CHECK(message("loss_scale.last_overflow", int64_t{-2}) != "");
  CHECK(message("not_finite.in_one", int64_t{2}) ==
        "counters.not_finite.in_one is 2, expected an integer in 0..1");
  CHECK(message("loss_scale.scale", 0.0) ==
        "counters.loss_scale.scale is 0, expected a number above 0");
}

TEST_CASE("what programs count may be anything") {
  CHECK(message("client.steps", int64_t{-5}).empty());
  CHECK(message("data.sample", std::numeric_limits<int64_t>::max()).empty());
}

}  // namespace zeroth::checkpoint::counters_test
