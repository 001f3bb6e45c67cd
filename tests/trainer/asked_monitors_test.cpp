#include "trainer/asked_monitors.h"

#include <doctest/doctest.h>

#include "tests/trainer/flag_line.h"
#include "tests/trainer/workbench.h"

namespace zeroth::trainer {
namespace {

configs::Config config_of(const std::string& line, const configs::Config& config = {}) {
  configs::Resolved resolved{.config = config, .origins = {}, .notes = {}};
  switch_monitors_on(parse(line), resolved);
  CHECK((resolved.origins["tensorboard.enabled"] == "--report_to") ==
        (resolved.config.tensorboard.enabled && !config.tensorboard.enabled));
  return resolved.config;
}

}  // namespace

TEST_CASE("--report_to tensorboard writes into a folder of the run in the output") {
  const auto config = config_of("--output out --report_to tensorboard");
  CHECK(config.tensorboard.enabled);
  CHECK(config.tensorboard.output_path == "out/runs");
  CHECK(has(config.tensorboard.job_name, "_"));
  CHECK_FALSE(config.csv_monitor.enabled);
}

TEST_CASE("--logging_dir is the folder itself, for every monitor that is asked for") {
  const auto config = config_of("--report_to all --logging_dir logs/a");
  for (const auto& monitor : {config.tensorboard, config.csv_monitor}) {
    CHECK(monitor.enabled);
    CHECK(monitor.output_path == "logs/a");
    CHECK(monitor.job_name.empty());
  }
}

TEST_CASE("a monitor of the configuration stays where it is, and none asks for none") {
  configs::Config config;
  config.tensorboard = {.enabled = true, .output_path = "mine", .job_name = "job"};
  CHECK(config_of("--report_to tensorboard", config).tensorboard.output_path == "mine");
  CHECK(config_of("--report_to none", config).tensorboard.enabled);
  CHECK_FALSE(config_of("--report_to none").tensorboard.enabled);
}

TEST_CASE("the folder in runs/ has a name where --report_to made it") {
  const auto name_of = [](const std::string& line, const configs::Config& config = {}) {
    configs::Resolved resolved{.config = config, .origins = {}, .notes = {}};
    switch_monitors_on(parse(line), resolved);
    const std::string name = run_name(parse(line), resolved.config, resolved.origins);
    CHECK((name.empty() || name == resolved.config.tensorboard.job_name ||
           name == resolved.config.csv_monitor.job_name));
    return name;
  };
  CHECK_FALSE(name_of("--output out --report_to tensorboard").empty());
  CHECK_FALSE(name_of("--output out --report_to wandb").empty());
  CHECK(name_of("--output out --report_to all --logging_dir logs").empty());
  CHECK(name_of("--output out").empty());
  configs::Config config;
  config.tensorboard = {.enabled = true, .output_path = "mine", .job_name = "job"};
  CHECK(name_of("--output out --report_to tensorboard", config).empty());
}

}  // namespace zeroth::trainer
