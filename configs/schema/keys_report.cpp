#include "configs/schema/key_rows.h"

namespace zeroth::configs {
namespace {

std::vector<ConfigKey> printing_rows() {
  constexpr std::string_view kThroughput = "throughput is always printed";
  return {
      honored("steps_per_print", kInteger, "null", ">= 0 or Infinity",
              "steps between detailed lines; null, 0 or Infinity: no such lines"),
      honored("wall_clock_breakdown", kBool, "false", "",
              "each printed step is split into forward, backward, reduce and update; costs "
              "synchronization"),
      honored("memory_breakdown", kBool, "false", "",
              "device and host memory before and after each phase of a step"),
      honored("dump_state", kBool, "false", "",
              "prints the resolved configuration and the engine's state when training starts"),
      honored("log_level", kString, "null",
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
      honored("comms_logger.enabled", kBool, "false", "", "switches it on"),
      honored("comms_logger.verbose", kBool, "false", "", "also a line for every collective"),
      honored("comms_logger.prof_all", kBool, "true", "", "all operations, not only prof_ops"),
      honored("comms_logger.prof_ops", kList, "[]", "",
              "operations that are counted without prof_all: all_reduce, all_gather_into_tensor, "
              "reduce_scatter_tensor, broadcast, barrier"),
      honored("comms_logger.debug", kBool, "false", "",
              "names an operation together with its caller"),
      section("flops_profiler", "operations, parameters and times of one step, reported once"),
      honored("flops_profiler.enabled", kBool, "false", "", "switches it on"),
      honored("flops_profiler.profile_step", kInteger, "1", ">= 0",
              "the step, counted from 0: 1 is the second one"),
      honored("flops_profiler.module_depth", kInteger, "-1", ">= -1",
              "levels of the model that are broken down; -1: all"),
      honored("flops_profiler.top_modules", kInteger, "1", ">= 0",
              "parts that are listed per level, the costliest first"),
      honored("flops_profiler.detailed", kBool, "true", "", "a line for every block"),
      honored("flops_profiler.output_file", kString, "null", "",
              "where the profile goes; null: standard output"),
      honored("flops_profiler.recompute_fwd_factor", kNumber, "0.0", ">= 0",
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
      honored("tensorboard.enabled", kBool, "false", "", "switches it on"),
      honored("tensorboard.output_path", kString, "\"\"", "", kPath),
      honored("tensorboard.job_name", kString, "\"DeepSpeedJobName\"", "", kJob),
      section("csv_monitor", "one CSV file per curve"),
      honored("csv_monitor.enabled", kBool, "false", "", "switches it on"),
      honored("csv_monitor.output_path", kString, "\"\"", "", kPath),
      honored("csv_monitor.job_name", kString, "\"DeepSpeedJobName\"", "", kJob),
      idle_section("wandb", kOff, "group team project", kHosted),
      idle_section("comet", kOff,
                   "samples_log_interval project workspace api_key experiment_name "
                   "experiment_key online mode",
                   kHosted),
  };
}

}  // namespace

std::vector<ConfigKey> report_rows() {
  return joined({printing_rows(), profiler_rows(), monitor_rows()});
}

}  // namespace zeroth::configs
