#include "trainer/report/page_facts.h"

#include <doctest/doctest.h>

#include <algorithm>

#include "tests/trainer/rows.h"

namespace zeroth::trainer {

TEST_CASE("the page lists every value of the configuration with its origin") {
  RunPlan plan;
  plan.flags.model = "/models/tiny-llama/";
  plan.samples.total_steps = 7;
  plan.config.zero.stage = 2;
  plan.origins = {{"zero_optimization.stage", "file"}, {"optimizer.params.lr", "--lr"}};
  const auto facts = page_facts(plan, {{"model", "tiny"}}, {{"machine", "here"}});
  CHECK(facts.title == "tiny-llama");
  CHECK(facts.total_steps == 7);
  CHECK(facts.summary.front().second == "tiny");
  CHECK(facts.environment.front().first == "machine");
  const auto value_of = [&](const std::string& key) {
    const auto found = std::find_if(facts.config.begin(), facts.config.end(),
                                    [&](const auto& value) { return value.key == key; });
    REQUIRE_MESSAGE(found != facts.config.end(), key);
    return *found;
  };
  CHECK(value_of("zero_optimization.stage").value == "2");
  CHECK(value_of("zero_optimization.stage").origin == "file");
  CHECK(value_of("optimizer.params.lr").origin == "--lr");
  CHECK(value_of("optimizer.type").value == "AdamW");
  CHECK(value_of("optimizer.params.betas").value == "[0.9,0.999]");
}

TEST_CASE("a step reaches the page with its speed, times and memory") {
  const auto step = page_step(sample_row(3), {.host = 5 << 20, .device_peak = 1 << 20});
  CHECK(step.step == 3);
  CHECK(step.loss == 2.5);
  CHECK(step.tokens_per_s == 2000);
  CHECK(step.memory_mib == 5);
  CHECK(step.gpu_mib == 1);
  CHECK(step.backward_s == 0.25);
  CHECK(step.compute_s == doctest::Approx(0.485));
}

}  // namespace zeroth::trainer
