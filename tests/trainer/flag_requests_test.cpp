#include "trainer/run_plan.h"

#include <doctest/doctest.h>

#include "tests/trainer/flag_line.h"
#include "tests/trainer/workbench.h"

namespace zeroth::trainer::flag_requests_test {
namespace {

struct Asked {
  RequestedMonitors monitors;
  configs::Resolved resolved;
  std::vector<std::string> warnings;
};

Asked ask(const std::string& line, const std::string& file = "{}", bool resumes = false) {
  Asked asked;
  const Flags flags = parse(line);
  asked.resolved = configs::resolve(configs::parse_text(file, "ds.json"), {}, {});
  asked.monitors = request_monitors(flags, resumes, asked.resolved);
  asked.warnings = diagnostic_lines(asked.resolved.notes, configs::Diagnostic::Kind::kWarning);
  return asked;
}

}  // namespace

TEST_CASE("--report_to tensorboard writes into a folder of the run in the output") {
  const Asked asked = ask("--output out --report_to tensorboard");
  const std::string directory = asked.monitors.tensorboard.directory.string();
  CHECK(directory == "out/runs/" + asked.monitors.run_name);
  CHECK(has(asked.monitors.run_name, "_"));
  CHECK_FALSE(asked.resolved.config.csv_monitor.enabled);
  CHECK_FALSE(asked.resolved.config.tensorboard.enabled);
  CHECK(asked.warnings.empty());
}

TEST_CASE("--logging_dir is the folder itself, for every monitor that is asked for") {
  const Asked asked = ask("--report_to all --logging_dir logs/a");
  CHECK(asked.monitors.tensorboard.directory == "logs/a");
  CHECK(asked.monitors.run_name.empty());
  CHECK(asked.resolved.config.csv_monitor.enabled);
  CHECK(asked.resolved.config.csv_monitor.output_path == "logs/a");
  CHECK(asked.resolved.config.csv_monitor.job_name.empty());
}

TEST_CASE("what the configuration has on stays where it is, beside what --report_to asks for") {
  const std::string file =
      R"({"tensorboard": {"enabled": true, "output_path": "mine", "job_name": "job"},
          "csv_monitor": {"enabled": true, "output_path": "rows"}})";
  const Asked both = ask("--output out --report_to all", file);
  CHECK(both.resolved.config.tensorboard.output_path == "mine");
  CHECK(both.resolved.config.csv_monitor.output_path == "rows");
  CHECK(has(both.monitors.tensorboard.directory.string(), "out/runs/"));
  const Asked none = ask("--output out --report_to none", file);
  CHECK(none.resolved.config.tensorboard.enabled);
  CHECK(none.monitors.tensorboard.directory.empty());
}

TEST_CASE("wandb_key: a service becomes files with a warning, by either spelling of the wish") {
  const std::string reached =
      "no service is reached from here; the curves go to files for TensorBoard and to CSV files. "
      "logs is imported by `wandb sync --sync-tensorboard logs`";
  const std::string key = R"({"wandb": {"enabled": true, "project": "p", "team": "t"}})";
  const Asked by_flag = ask("--report_to wandb --logging_dir logs");
  const Asked by_key = ask("--logging_dir logs", key);
  const Asked by_both = ask("--report_to wandb --logging_dir logs", key);
  CHECK(by_flag.warnings == std::vector<std::string>{"--report_to wandb: " + reached});
  CHECK(by_key.warnings == std::vector<std::string>{"wandb: " + reached});
  CHECK(by_both.warnings == by_flag.warnings);
  for (const Asked* asked : {&by_flag, &by_key, &by_both}) {
    CHECK(asked->monitors.tensorboard.directory == "logs");
    CHECK(asked->resolved.config.csv_monitor.output_path == "logs");
  }
  const Asked off = ask("--output out", R"({"wandb": {"enabled": false, "project": "p"}})");
  CHECK(off.monitors.tensorboard.directory.empty());
  CHECK(off.warnings.empty());
}

TEST_CASE("wandb_key: comet is another such key, and other services are named as --report_to has") {
  const Asked comet = ask("--output out", R"({"comet": {"enabled": true, "api_key": "secret"}})");
  CHECK(has(comet.monitors.tensorboard.directory.string(), "out/runs/"));
  REQUIRE(comet.warnings.size() == 1);
  CHECK(has(comet.warnings[0], "comet: no service is reached from here; "));
  CHECK(has(comet.warnings[0], comet.monitors.tensorboard.directory.string()));
  CHECK(has(comet.warnings[0], "the service's own import"));
  CHECK_FALSE(has(comet.warnings[0], "secret"));
  const Asked several = ask("--output out --report_to mlflow swanlab", "{}", /*resumes=*/true);
  REQUIRE(several.warnings.size() == 1);
  CHECK(has(several.warnings[0], "--report_to mlflow swanlab: no service is reached from here"));
  CHECK(has(several.warnings[0], "CSV files. out/runs is imported by "));
  CHECK(
      has(several.warnings[0], "`swanlab convert -t tensorboard --tb-log-dir out/runs` and the "));
}

TEST_CASE("a folder that nobody writes to is noted") {
  const Asked asked = ask("--logging_dir logs");
  CHECK(asked.monitors.tensorboard.directory.empty());
  CHECK(has(diagnostic_lines(asked.resolved.notes).back(),
            "--logging_dir: no effect without --report_to tensorboard"));
}

}  // namespace zeroth::trainer::flag_requests_test
