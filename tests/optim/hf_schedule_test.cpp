#include "optim/schedule/hf_schedule.h"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <map>
#include <vector>

#include "tests/optim/fixtures.h"
#include "tests/optim/hf_schedule.h"

namespace zeroth::optim::hf_schedule_test {

TEST_CASE("every update sees the rate that transformers' schedules give") {
  std::map<std::string, int> curves;
  for (const nlohmann::json& fixture : load_fixture("hf_schedules.json")) {
    const std::string type = fixture["type"];
    configs::FlagValues flags = flags_for(type, fixture["lr"], fixture["kwargs"].dump());
    flags.warmup_steps = fixture["warmup_steps"];
    REQUIRE(flags.schedule.has_value());
    const LrSchedule schedule = schedule_for(flags, fixture["total_steps"]);
    const std::vector<double> rates = fixture["rates"];
    ++curves[type];
    CAPTURE(type);
    CAPTURE(fixture["kwargs"].dump());
    CAPTURE(*flags.warmup_steps);
    for (size_t update = 0; update < rates.size(); ++update) {
      CAPTURE(update);
      const double rate = schedule.at(static_cast<int64_t>(update));
      // The cosine's last steps are differences of nearly equal numbers.
      CHECK(std::abs(rate - rates[update]) <= 1e-12 * rates[update] + 1e-19);
    }
  }
  CHECK(curves.size() ==
        configs::kHfScheduleNames.size() - 1);  // the plateau has a test of its own
}

TEST_CASE(
    "a constant rate with 4 steps of warm-up begins as Trainer's, one without does not warm up") {
  configs::FlagValues flags = flags_for("constant_with_warmup", 1e-3, "");
  flags.warmup_steps = 4;
  const LrSchedule warm = schedule_for(flags, 12);
  CHECK(warm.at(0) == 0);
  CHECK(warm.at(1) == 2.5e-4);
  CHECK(warm.at(2) == 5e-4);
  CHECK(warm.at(4) == 1e-3);
  flags = flags_for("constant", 1e-3, "");
  flags.warmup_steps = 4;
  CHECK(schedule_for(flags, 12).at(0) == 1e-3);
}

TEST_CASE("after each evaluation the rate is that of torch's ReduceLROnPlateau") {
  int reductions = 0;
  for (const nlohmann::json& fixture : load_fixture("plateau.json")) {
    const std::string kwargs = fixture["kwargs"].dump();
    LrSchedule schedule =
        schedule_for(flags_for("reduce_lr_on_plateau", fixture["lr"], kwargs), 60);
    CAPTURE(kwargs);
    CHECK(schedule.at(7) == fixture["lr"]);
    for (size_t i = 0; i < fixture["losses"].size(); ++i) {
      CAPTURE(i);
      const nlohmann::json& loss = fixture["losses"][i];
      const double before = schedule.at(0);
      schedule.record_evaluation(loss.is_null() ? std::numeric_limits<double>::quiet_NaN()
                                                : loss.get<double>());
      CHECK(schedule.at(static_cast<int64_t>(i)) == fixture["rates"][i]);
      if (schedule.at(0) < before) ++reductions;
    }
  }
  CHECK(reductions > 20);
}

}  // namespace zeroth::optim::hf_schedule_test
