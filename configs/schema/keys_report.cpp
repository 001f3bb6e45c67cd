#include "configs/schema/key_rows.h"

namespace zeroth::configs {
namespace {

std::vector<Key> printing_rows() {
  constexpr std::string_view kThroughput = "throughput is always printed";
  return {
      honoured("steps_per_print", kInteger, "null", ">= 0 or Infinity",
               "a detailed line every this many steps; null, 0 or Infinity: never"),
      honoured("wall_clock_breakdown", kBool, "false", "",
               "each printed step is split into forward, backward, reduce and update; costs "
               "synchronisation"),
      honoured("memory_breakdown", kBool, "false", "",
               "device and host memory before and after each phase of a step"),
      honoured("dump_state", kBool, "false", "",
               "prints the resolved configuration and the engine's state when training starts"),
      honoured("log_level", kString, "null",
               "\"debug\" | \"info\" | \"warning\" | \"error\" | \"critical\"",
               "prints what is at least this important; null: info"),
      no_effect("disable_python_gc", kBool, "false", "there is no Python"),
      no_effect("vocabulary_size", kInteger, "null", "the model says it"),
      no_effect("timers", kSection, "null", kThroughput),
      no_effect("timers.throughput", kSection, "null", kThroughput),
      no_effect("timers.throughput.enabled", kBool, "true", kThroughput),
      no_effect("timers.throughput.synchronized", kBool, "true",
                "a step's time ends when its numbers are there"),
  };
}

std::vector<Key> profiler_rows() {
  return {
      section("comms_logger", "counts, sizes and times of collectives, told at the end"),
      honoured("comms_logger.enabled", kBool, "false", "", "switches it on"),
      honoured("comms_logger.verbose", kBool, "false", "", "also a line for every collective"),
      honoured("comms_logger.prof_all", kBool, "true", "", "all operations, not only prof_ops"),
      honoured("comms_logger.prof_ops", kList, "[]", "",
               "operations that are counted without prof_all: all_reduce, all_gather_into_tensor, "
               "reduce_scatter_tensor, broadcast, barrier"),
      honoured("comms_logger.debug", kBool, "false", "",
               "names an operation together with who issued it"),
      section("flops_profiler", "operations, parameters and times of one step, told once"),
      honoured("flops_profiler.enabled", kBool, "false", "", "switches it on"),
      honoured("flops_profiler.profile_step", kInteger, "1", ">= 0",
               "the step, counted from 0: 1 is the second one"),
      honoured("flops_profiler.module_depth", kInteger, "-1", ">= -1",
               "levels of the model that are broken down; -1: all"),
      honoured("flops_profiler.top_modules", kInteger, "1", ">= 0",
               "parts that are listed per level, the costliest first"),
      honoured("flops_profiler.detailed", kBool, "true", "", "a line for every block"),
      honoured("flops_profiler.output_file", kString, "null", "",
               "where the profile goes; null: standard output"),
      honoured("flops_profiler.recompute_fwd_factor", kNumber, "0.0", ">= 0",
               "forward cost counted again for recompute; 0: as much as is recomputed"),
  };
}

std::vector<Key> monitor_rows() {
  constexpr std::string_view kOff = "enabled = false";
  constexpr std::string_view kPath = "folder above job_name; empty: the working folder";
  constexpr std::string_view kJob = "folder of the files, in output_path";
  constexpr std::string_view kHosted =
      "no service is reached from here: where it is on, finetune writes what --report_to wandb "
      "does, and a warning says so";
  return {
      section("tensorboard", "event files that TensorBoard reads"),
      honoured("tensorboard.enabled", kBool, "false", "", "switches it on"),
      honoured("tensorboard.output_path", kString, "\"\"", "", kPath),
      honoured("tensorboard.job_name", kString, "\"DeepSpeedJobName\"", "", kJob),
      section("csv_monitor", "one CSV file per curve"),
      honoured("csv_monitor.enabled", kBool, "false", "", "switches it on"),
      honoured("csv_monitor.output_path", kString, "\"\"", "", kPath),
      honoured("csv_monitor.job_name", kString, "\"DeepSpeedJobName\"", "", kJob),
      idle_section("wandb", kOff, "group team project", kHosted),
      idle_section("comet", kOff,
                   "samples_log_interval project workspace api_key experiment_name "
                   "experiment_key online mode",
                   kHosted),
  };
}

}  // namespace

std::vector<Key> report_rows() {
  return joined({printing_rows(), profiler_rows(), monitor_rows()});
}

}  // namespace zeroth::configs
