#include "optim/schedule/one_cycle.h"

#include <doctest/doctest.h>

#include <cmath>
#include <vector>

#include "base/error.h"
#include "tests/optim/schedule_params.h"

namespace zeroth::optim {

TEST_CASE("every update sees the betas that OneCycle gives DeepSpeed's optimizer") {
  int curves = 0;
  for (const nlohmann::json& fixture : load_fixture("schedules.json")) {
    if (fixture["kind"] != "OneCycle") continue;
    const configs::OneCycleConfig config = one_cycle_of(fixture["params"]);
    if (!config.cycle_momentum) continue;
    CAPTURE(fixture["params"].dump());
    ++curves;
    const std::vector<std::array<double, 2>> betas = fixture["betas"];
    REQUIRE(betas.size() == 60);
    for (size_t update = 0; update < betas.size(); ++update) {
      CAPTURE(update);
      const std::array<double, 2> own = one_cycle_betas(config, static_cast<int64_t>(update));
      CHECK(std::abs(own[0] - betas[update][0]) <= 1e-12);
      CHECK(own[1] == betas[update][1]);
    }
  }
  CHECK(curves > 10);
}

TEST_CASE("the rate rises to its maximum at the first half's end and falls back") {
  const configs::OneCycleConfig config{
      .min_lr = 1, .max_lr = 3, .first_step_size = 4, .second_step_size = 2};
  CHECK(one_cycle_lr(config, 0) == 1);
  CHECK(one_cycle_lr(config, 2) == doctest::Approx(2));
  CHECK(one_cycle_lr(config, 4) == doctest::Approx(3));
  CHECK(one_cycle_lr(config, 5) == doctest::Approx(2));
  CHECK(one_cycle_lr(config, 6) == doctest::Approx(1));
  CHECK(one_cycle_lr(config, 100) == 1);
}

TEST_CASE("betas that are not cycled are not asked for") {
  CHECK_THROWS_AS(one_cycle_betas({.cycle_momentum = false}, 0), InternalError);
}

}  // namespace zeroth::optim
