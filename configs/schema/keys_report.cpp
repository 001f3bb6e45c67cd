#include "configs/schema/key_rows.h"
#include "configs/schema/key_value.h"

namespace zeroth::configs {
namespace {

std::vector<ConfigKey> printing_rows() {
  constexpr std::string_view kThroughput = "throughput is always printed";
  return {
      honored("steps_per_print", field_with_special<&Config::steps_per_print, kInfinity, 0>(),
              "null", ">= 0 or Infinity",
              "steps between detailed lines; null, 0 or Infinity: no such lines"),
      honored("wall_clock_breakdown", field<&Config::wall_clock_breakdown>(), "false", "",
              "each printed step is split into forward, backward, reduce and update; costs "
              "synchronization"),
      honored("memory_breakdown", field<&Config::memory_breakdown>(), "false", "",
              "device and host memory before and after each phase of a step"),
      honored("dump_state", field<&Config::dump_state>(), "false", "",
              "prints the resolved configuration and the engine's state when training starts"),
      honored("log_level", field<&Config::log_level>(), "null",
              "\"debug\" | \"info\" | \"warning\" | \"error\" | \"critical\"",
              "minimum severity of printed messages; null: info"),
      no_effect("disable_python_gc", kBool, "false", "there is no Python"),
      no_effect("vocabulary_size", kInteger, "null", "the model determines it"),
      no_effect("timers", kSection, "null", kThroughput),
      no_effect("timers.throughput", kSection, "null", kThroughput),
      no_effect("timers.throughput.enabled", kBool, "true", kThroughput),
      no_effect("timers.throughput.synchronized", kBool, "true",
                "a step is timed until its results are available"),
  };
}

std::vector<ConfigKey> profiler_rows() {
  return {
      section("comms_logger", "counts, sizes and times of collectives, reported at the end"),
      honored("comms_logger.enabled", field<&CommsLoggerConfig::enabled>(), "false", "",
              "switches it on"),
      honored("comms_logger.verbose", field<&CommsLoggerConfig::verbose>(), "false", "",
              "also a line for every collective"),
      honored("comms_logger.prof_all", field<&CommsLoggerConfig::prof_all>(), "true", "",
              "all operations, not only prof_ops"),
      honored("comms_logger.prof_ops", field<&CommsLoggerConfig::prof_ops>(), "[]", "",
              "operations that are counted without prof_all: all_reduce, all_gather_into_tensor, "
              "reduce_scatter_tensor, broadcast, barrier"),
      honored("comms_logger.debug", field<&CommsLoggerConfig::debug>(), "false", "",
              "names an operation together with its caller"),
      section("flops_profiler", "operations, parameters and times of one step, reported once"),
      honored("flops_profiler.enabled", field<&FlopsProfilerConfig::enabled>(), "false", "",
              "switches it on"),
      honored("flops_profiler.profile_step", field<&FlopsProfilerConfig::profile_step>(), "1",
              ">= 0", "the step, counted from 0: 1 is the second one"),
      honored("flops_profiler.module_depth", field<&FlopsProfilerConfig::module_depth>(), "-1",
              ">= -1", "levels of the model that are broken down; -1: all"),
      honored("flops_profiler.top_modules", field<&FlopsProfilerConfig::top_modules>(), "1", ">= 0",
              "parts that are listed per level, the costliest first"),
      honored("flops_profiler.detailed", field<&FlopsProfilerConfig::detailed>(), "true", "",
              "a line for every block"),
      honored("flops_profiler.output_file", null_if_empty<&FlopsProfilerConfig::output_file>(),
              "null", "", "where the profile goes; null: standard output"),
      honored("flops_profiler.recompute_fwd_factor",
              field<&FlopsProfilerConfig::recompute_fwd_factor>(), "0.0", ">= 0",
              "forward cost counted again for recompute; 0: as much as is recomputed"),
  };
}

std::vector<ConfigKey> monitor_rows() {
  constexpr std::string_view kOff = "enabled = false";
  constexpr std::string_view kPath = "folder above job_name; empty: the working folder";
  constexpr std::string_view kJob = "folder of the files, in output_path";
  constexpr std::string_view kHosted =
      "external services are not supported: if enabled, finetune writes what --report_to wandb "
      "does, with a warning";
  return {
      section("tensorboard", "event files that TensorBoard reads"),
      honored("tensorboard.enabled", field<&Config::tensorboard, &MonitorConfig::enabled>(),
              "false", "", "switches it on"),
      honored("tensorboard.output_path", field<&Config::tensorboard, &MonitorConfig::output_path>(),
              "\"\"", "", kPath),
      honored("tensorboard.job_name", field<&Config::tensorboard, &MonitorConfig::job_name>(),
              "\"DeepSpeedJobName\"", "", kJob),
      section("csv_monitor", "one CSV file per curve"),
      honored("csv_monitor.enabled", field<&Config::csv_monitor, &MonitorConfig::enabled>(),
              "false", "", "switches it on"),
      honored("csv_monitor.output_path", field<&Config::csv_monitor, &MonitorConfig::output_path>(),
              "\"\"", "", kPath),
      honored("csv_monitor.job_name", field<&Config::csv_monitor, &MonitorConfig::job_name>(),
              "\"DeepSpeedJobName\"", "", kJob),
      idle_section("wandb", kOff, "group team project", kHosted),
      idle_section("comet", kOff,
                   "samples_log_interval project workspace api_key experiment_name experiment_key "
                   "online mode",
                   kHosted),
  };
}

}  // namespace

std::vector<ConfigKey> report_rows() {
  return joined({printing_rows(), profiler_rows(), monitor_rows()});
}

}  // namespace zeroth::configs
