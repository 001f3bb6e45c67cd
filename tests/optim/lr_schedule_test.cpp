#include "optim/schedule/lr_schedule.h"

#include <doctest/doctest.h>

#include <cmath>
#include <map>
#include <vector>

#include "base/error.h"
#include "tests/optim/schedule_params.h"

namespace zeroth::optim::lr_schedule_test {

namespace {

using configs::SchedulerConfig;

configs::LrRangeTestConfig range_test_of(const nlohmann::json& params) {
  configs::LrRangeTestConfig config;
  config.min_lr = params.value("lr_range_test_min_lr", config.min_lr);
  config.step_size = params.value("lr_range_test_step_size", config.step_size);
  config.step_rate = params.value("lr_range_test_step_rate", config.step_rate);
  config.staircase = params.value("lr_range_test_staircase", config.staircase);
  return config;
}

SchedulerConfig config_of(const nlohmann::json& fixture) {
  static const std::map<std::string, SchedulerConfig::Kind> kKinds = {
      {"Constant", SchedulerConfig::Kind::kConstant},
      {"WarmupLR", SchedulerConfig::Kind::kWarmupLr},
      {"WarmupDecayLR", SchedulerConfig::Kind::kWarmupDecayLr},
      {"WarmupCosineLR", SchedulerConfig::Kind::kWarmupCosineLr},
      {"OneCycle", SchedulerConfig::Kind::kOneCycle},
      {"LRRangeTest", SchedulerConfig::Kind::kLrRangeTest}};
  const nlohmann::json& params = fixture["params"];
  SchedulerConfig config;
  config.kind = kKinds.at(fixture["kind"]);
  config.warmup_min_lr = params.value("warmup_min_lr", config.warmup_min_lr);
  config.warmup_max_lr = params.value("warmup_max_lr", config.warmup_max_lr);
  config.warmup_num_steps = params.value("warmup_num_steps", config.warmup_num_steps);
  config.warmup_type = params.value("warmup_type", "log") == "log"
                           ? SchedulerConfig::Warmup::kLog
                           : SchedulerConfig::Warmup::kLinear;
  config.total_num_steps = params.value("total_num_steps", config.total_num_steps);
  config.warmup_min_ratio = params.value("warmup_min_ratio", config.warmup_min_ratio);
  config.cos_min_ratio = params.value("cos_min_ratio", config.cos_min_ratio);
  config.one_cycle = one_cycle_of(params);
  config.range_test = range_test_of(params);
  return config;
}

}  // namespace

TEST_CASE("every update sees the rate that DeepSpeed's optimizer sees") {
  std::map<std::string, int> curves;
  for (const nlohmann::json& fixture : load_fixture("schedules.json")) {
    const LrSchedule schedule(config_of(fixture), {.lr = fixture["optimizer_lr"]});
    const std::vector<double> rates = fixture["rates"];
    REQUIRE(rates.size() == 60);
    ++curves[fixture["kind"]];
    CAPTURE(fixture["kind"].dump());
    CAPTURE(fixture["params"].dump());
    for (size_t update = 0; update < rates.size(); ++update) {
      CAPTURE(update);
      const double rate = schedule.at(static_cast<int64_t>(update));
      // The cosine's last steps are differences of nearly equal numbers.
      CHECK(std::abs(rate - rates[update]) <= 1e-12 * rates[update] + 1e-19);
    }
  }
  CHECK(curves.size() == 6);
}

TEST_CASE("betas are the optimizer's under every schedule that does not cycle them") {
  for (const SchedulerConfig::Kind kind :
       {SchedulerConfig::Kind::kConstant, SchedulerConfig::Kind::kWarmupLr,
        SchedulerConfig::Kind::kLrRangeTest, SchedulerConfig::Kind::kOneCycle}) {
    const LrSchedule schedule({.kind = kind, .one_cycle = {.cycle_momentum = false}},
                              {.betas = {0.7, 0.95}});
    CHECK(schedule.betas_at(0) == std::array{0.7, 0.95});
    CHECK(schedule.betas_at(3000) == std::array{0.7, 0.95});
  }
}

TEST_CASE("the first two updates of a warm-up run at its minimum rate") {
  const LrSchedule schedule({.kind = SchedulerConfig::Kind::kWarmupLr,
                             .warmup_min_lr = 1e-6,
                             .warmup_max_lr = 1e-3,
                             .warmup_num_steps = 4,
                             .warmup_type = SchedulerConfig::Warmup::kLinear},
                            {.lr = 0.5});
  CHECK(schedule.at(0) == 1e-6);
  CHECK(schedule.at(1) == 1e-6);
  CHECK(schedule.at(2) > 1e-6);
  CHECK(schedule.at(4) < 1e-3);
  CHECK(schedule.at(5) == 1e-3);
}

TEST_CASE("a cosine schedule's first update is at rate zero whatever its minimum ratio") {
  const LrSchedule schedule({.kind = SchedulerConfig::Kind::kWarmupCosineLr,
                             .warmup_num_steps = 2,
                             .total_num_steps = 10,
                             .warmup_min_ratio = 0.5},
                            {.lr = 1e-3});
  CHECK(schedule.at(0) == 0.0);
  CHECK(schedule.at(1) == 0.5e-3);
}

TEST_CASE("a cosine to zero stays there") {
  const LrSchedule schedule({.kind = SchedulerConfig::Kind::kHuggingFace,
                             .hf = {.type = configs::HfSchedule::Type::kCosine, .total_steps = 10}},
                            {.lr = 1e-3});
  CHECK(schedule.at(0) == 1e-3);
  CHECK(schedule.at(10) == 0.0);
  CHECK(schedule.at(15) == 0.0);
}

TEST_CASE("a schedule has no update before the first") {
  CHECK_THROWS_AS(LrSchedule({}, {}).at(-1), InternalError);
}

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

}  // namespace zeroth::optim::lr_schedule_test
