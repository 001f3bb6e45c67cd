#include "trainer/report/monitoring.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>

#include "tests/trainer/rows.h"

namespace zeroth::trainer::monitoring_test {
namespace {

std::vector<std::string> tags(const std::vector<monitor::Event>& events) {
  std::vector<std::string> names;
  for (const auto& event : events) names.push_back(event.tag);
  return names;
}

}  // namespace

TEST_CASE("the page lists every value of the configuration with its origin") {
  RunPlan plan;
  plan.flags.model = "/models/tiny-llama/";
  plan.flags.output = "/runs/first/";
  plan.samples.total_steps = 7;
  plan.config.zero.stage = 2;
  plan.origins = {{"zero_optimization.stage", "file"}, {"optimizer.params.lr", "--lr"}};
  const auto facts = page_facts(plan, {{"model", "tiny"}}, {{"machine", "here"}});
  CHECK(facts.title == "first");
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
  CHECK(step.at("step") == 3);
  CHECK(step.at("loss") == 2.5);
  CHECK(step.at("tokens_per_s") == 2000);
  CHECK(step.at("memory_mib") == 5);
  CHECK(step.at("gpu_mib") == 1);
  CHECK(step.at("backward_s") == 0.25);
  CHECK(step.at("compute_s").get<double>() == doctest::Approx(0.485));
}

TEST_CASE("a step's events have DeepSpeed's tags, over samples") {
  const auto events = step_events(sample_row(3), {}, 24);
  CHECK(tags(events) == std::vector<std::string>{"Train/Samples/train_loss", "Train/Samples/lr",
                                                 "Train/Samples/grad_norm"});
  CHECK(events[0].value == 2.5);
  CHECK(events[1].value == 4e-5);  // of the next step
  for (const auto& event : events) CHECK(event.x == 24);
}

TEST_CASE("a row of log_history has the tags of Trainer's TensorBoardCallback, over steps") {
  const auto events = trainer_events({{"epoch", 0.5},
                                      {"grad_norm", nullptr},
                                      {"learning_rate", 5e-5},
                                      {"loss", 2.5},
                                      {"step", 7}});
  CHECK(tags(events) == std::vector<std::string>{"train/epoch", "train/grad_norm",
                                                 "train/learning_rate", "train/loss"});
  CHECK(std::isnan(events[1].value));
  CHECK(events[3].value == 2.5);
  for (const auto& event : events) CHECK(event.x == 7);
  CHECK(tags(trainer_events({{"epoch", 1}, {"eval_loss", 2}, {"eval_runtime", 3}, {"step", 8}})) ==
        std::vector<std::string>{"train/epoch", "eval/loss", "eval/runtime"});
  CHECK(tags(trainer_events({{"step", 9}, {"train_loss", 2}, {"total_flos", 3}})) ==
        std::vector<std::string>{"train/total_flos", "train/train_loss"});
  CHECK(trainer_events({}).empty());
}

TEST_CASE("the loss scale belongs to fp16, times to wall_clock_breakdown and flops_profiler") {
  configs::Config config;
  config.precision = configs::Precision::kFp16;
  CHECK(step_events(sample_row(3), config, 1).back().tag == "Train/Samples/loss_scale");
  config.precision = configs::Precision::kFp32;
  config.wall_clock_breakdown = true;
  const auto events = step_events(sample_row(3), config, 1);
  REQUIRE(events.size() == 8);
  CHECK(events[3].tag == "Train/Samples/elapsed_time_ms_forward");
  CHECK(events[3].value == doctest::Approx(200));
  CHECK(events[4].tag == "Train/Samples/elapsed_time_ms_backward");
  CHECK(events[4].value == doctest::Approx(280));
  CHECK(events[5].tag == "Train/Samples/elapsed_time_ms_backward_inner");
  CHECK(events[6].tag == "Train/Samples/elapsed_time_ms_backward_allreduce");
  CHECK(events[6].value == doctest::Approx(30));
  CHECK(events[7].tag == "Train/Samples/elapsed_time_ms_step");
  CHECK(events[7].value == doctest::Approx(4));
}

TEST_CASE("an evaluation is one event") {
  const auto events = eval_events({.step = 2, .eval_loss = 1.5}, 16);
  REQUIRE(events.size() == 1);
  CHECK(events[0].tag == "Train/Samples/eval_loss");
  CHECK(events[0].value == 1.5);
}

}  // namespace zeroth::trainer::monitoring_test
