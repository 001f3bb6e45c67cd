#include "optim/loss_scaler.h"

#include <doctest/doctest.h>

#include <cmath>
#include <vector>

#include "base/error.h"
#include "tests/optim/fixtures.h"

namespace zeroth::optim::loss_scaler_test {

namespace {

configs::LossScaleConfig config_of(const nlohmann::json& fixture) {
  return {.initial_scale_power = fixture["initial_scale_power"],
          .window = fixture["window"],
          .hysteresis = fixture["hysteresis"],
          .consecutive_hysteresis = fixture["consecutive_hysteresis"],
          .min_scale = fixture["min_scale"]};
}

}  // namespace

TEST_CASE("the dynamic scale takes DeepSpeed's sequence and meets the floor where it does") {
  int runs_that_stop = 0;
  for (const nlohmann::json& fixture : load_fixture("loss_scales.json")) {
    CAPTURE(fixture.dump());
    const std::string overflows = fixture["overflows"];
    const std::vector<int> log2_scales = fixture["log2_scales"];
    const nlohmann::json& stops_at = fixture["stops_at"];
    REQUIRE(overflows.size() == log2_scales.size());
    LossScaler scaler(config_of(fixture));
    bool stopped = false;
    for (size_t step = 0; step < overflows.size(); ++step) {
      CAPTURE(step);
      const bool overflow = overflows[step] == 'x';
      if (overflow && scaler.at_floor() && !stopped) {
        CHECK(stops_at == step);
        stopped = true;
      }
      scaler.update(overflow);
      CHECK(scaler.scale() == std::ldexp(1.0, log2_scales[step]));
    }
    CHECK(stopped == !stops_at.is_null());
    runs_that_stop += stopped;
  }
  CHECK(runs_that_stop > 0);
}

TEST_CASE("the hysteresis delays the first halving") {
  LossScaler scaler({.initial_scale_power = 10, .hysteresis = 3});
  CHECK(scaler.scale() == 1024);
  scaler.update(true);
  scaler.update(true);
  CHECK(scaler.scale() == 1024);
  scaler.update(true);
  CHECK(scaler.scale() == 512);
}

TEST_CASE("a static scale never moves and has no floor") {
  LossScaler scaler({.static_scale = 1024, .min_scale = 1024});
  for (int i = 0; i < 3000; ++i) scaler.update(i % 3 == 0);
  CHECK(scaler.scale() == 1024);
  CHECK(!scaler.at_floor());
}

TEST_CASE("only fp16 scales its loss") {
  configs::Config config;
  config.loss_scale.initial_scale_power = 8;
  CHECK(make_loss_scaler(config).scale() == 1);
  config.precision = configs::Precision::kFp16;
  CHECK(make_loss_scaler(config).scale() == 256);
  config.precision = configs::Precision::kBf16;
  CHECK(make_loss_scaler(config).scale() == 1);
}

TEST_CASE("a scaler refuses a config that cannot work") {
  CHECK_THROWS_AS(LossScaler({.static_scale = -1}), InternalError);
  CHECK_THROWS_AS(LossScaler({.window = 0}), InternalError);
  CHECK_THROWS_AS(LossScaler({.hysteresis = 0}), InternalError);
  CHECK_THROWS_AS(LossScaler({.min_scale = 0}), InternalError);
}

}  // namespace zeroth::optim::loss_scaler_test
