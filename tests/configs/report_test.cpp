#include "tests/configs/support.h"

namespace zeroth::configs::report_test {

TEST_CASE("steps_per_print may be Infinity, as Python writes it, and then never prints") {
  CHECK(config_of(R"({"steps_per_print": Infinity})").steps_per_print == 0);
  CHECK(config_of(R"({"steps_per_print": 5})").steps_per_print == 5);
  CHECK(config_of(R"({"steps_per_print": null})").steps_per_print == 0);
  CHECK(error_of(R"({"steps_per_print": -Infinity})") ==
        "test.json: steps_per_print: expected an integer, found -inf");
  CHECK(error_of(R"({"zero_optimization": {"reduce_bucket_size": Infinity}})") ==
        "test.json: zero_optimization.reduce_bucket_size: expected an integer, found inf");
}

TEST_CASE("printing, monitors and profilers are off by default, with DeepSpeed's values") {
  const Config config = config_of("{}");
  CHECK_FALSE(config.wall_clock_breakdown);
  CHECK_FALSE(config.memory_breakdown);
  CHECK_FALSE(config.dump_state);
  CHECK(config.log_level == LogLevel::kInfo);
  CHECK_FALSE(config.csv_monitor.enabled);
  CHECK(config.tensorboard.job_name == "DeepSpeedJobName");
  CHECK(config.comms_logger.prof_all);
  CHECK(config.flops_profiler.profile_step == 1);
  CHECK(config.flops_profiler.module_depth == -1);
  CHECK(config.flops_profiler.output_file.empty());
}

TEST_CASE("an operation that no run has is warned of") {
  CHECK(has_warning(resolve_text(R"({"comms_logger": {"prof_ops": ["all_gather"]}})"),
                    "comms_logger.prof_ops: unknown operation all_gather; known: "));
  CHECK(warnings_of(resolve_text(R"({"comms_logger": {"prof_ops": ["barrier"]}})")).empty());
}

TEST_CASE("the keys of printing, monitors and profilers are read") {
  const Config config = config_of(R"({"memory_breakdown": true, "dump_state": true,
      "log_level": "warning", "dataloader_drop_last": true,
      "csv_monitor": {"enabled": true, "output_path": "logs", "job_name": "a"},
      "tensorboard": {"enabled": true, "output_path": "events"},
      "comms_logger": {"enabled": true, "verbose": true, "prof_all": false,
                       "prof_ops": ["all_reduce", "broadcast"], "debug": true},
      "flops_profiler": {"enabled": true, "profile_step": 3, "module_depth": 2, "top_modules": 4,
                         "detailed": false, "output_file": "f.txt",
                         "recompute_fwd_factor": 1.0}})");
  CHECK(config.memory_breakdown);
  CHECK(config.dump_state);
  CHECK(config.log_level == LogLevel::kWarning);
  CHECK(config.dataloader_drop_last);
  CHECK(config.csv_monitor.enabled);
  CHECK(config.csv_monitor.output_path == "logs");
  CHECK(config.csv_monitor.job_name == "a");
  CHECK(config.tensorboard.enabled);
  CHECK(config.tensorboard.output_path == "events");
  CHECK(config.comms_logger.enabled);
  CHECK(config.comms_logger.verbose);
  CHECK_FALSE(config.comms_logger.prof_all);
  CHECK(config.comms_logger.prof_ops == std::vector<std::string>{"all_reduce", "broadcast"});
  CHECK(config.comms_logger.debug);
  CHECK(config.flops_profiler.enabled);
  CHECK(config.flops_profiler.profile_step == 3);
  CHECK(config.flops_profiler.module_depth == 2);
  CHECK(config.flops_profiler.top_modules == 4);
  CHECK_FALSE(config.flops_profiler.detailed);
  CHECK(config.flops_profiler.output_file == "f.txt");
  CHECK(config.flops_profiler.recompute_fwd_factor == 1.0);
}

TEST_CASE("wandb_key: a service is no error, whatever its section says, and none is reached") {
  for (const char* service : {"wandb", "comet"}) {
    const std::string name = service;
    CAPTURE(name);
    const Resolved on =
        resolve_text(fmt::format(R"({{"{}": {{"enabled": true, "project": "p"}}}})", name));
    CHECK(on.services == std::vector<std::string>{name});
    CHECK(has_warning(on, name + ": external services are not supported"));
    for (const char* off : {"{}", R"({"project": "p"})", R"({"enabled": "auto"})", "null",
                            R"({"enabled": false, "project": "p"})"}) {
      const Resolved idle = resolve_text(fmt::format(R"({{"{}": {}}})", name, off));
      CHECK(idle.services.empty());
      CHECK(warnings_of(idle).empty());
    }
    CHECK(error_of(fmt::format(R"({{"{}": {{"enabled": 1}}}})", name)) ==
          "test.json: " + name + ".enabled: expected true or false, found 1");
    CHECK(error_of(fmt::format(R"({{"{}": {{"enabled": true, "projekt": 1}}}})", name)) ==
          "test.json: " + name + ".projekt: unknown key; did you mean project?");
    CHECK(error_of(fmt::format(R"({{"{}": true}})", name)).find(name + ": expected") !=
          std::string::npos);
  }
}

TEST_CASE("levels and lists that do not exist are refused") {
  CHECK(error_of(R"({"log_level": "loud"})").find("log_level: expected \"debug\"") !=
        std::string::npos);
  CHECK(error_of(R"({"comms_logger": {"prof_ops": [1]}})") ==
        "test.json: comms_logger.prof_ops: expected a list of names, found the list [1]");
}

}  // namespace zeroth::configs::report_test
