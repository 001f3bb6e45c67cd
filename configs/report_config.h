// The resolved logging of a run: monitors, profilers and log level. Nothing here changes the
// training.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace zeroth::configs {

// MonitorConfig configures csv_monitor or tensorboard: rank 0 writes Train/Samples/* events, with
// the number of samples trained so far as x, into output_path/job_name/.
struct MonitorConfig {
  // Enables the monitor.
  bool enabled = false;
  // Directory that contains job_name; empty: the working directory.
  std::string output_path = "";
  std::string job_name = "DeepSpeedJobName";
};

// CommsLoggerConfig configures the statistics of collectives: counts, sizes and times, summed per
// operation and size, printed at the end of a run.
struct CommsLoggerConfig {
  // Enables the statistics.
  bool enabled = false;
  // Prints a line for every collective, too.
  bool verbose = false;
  // True: counts all operations. False: only those of prof_ops (named as in DeepSpeed: all_reduce,
  // all_gather_into_tensor, reduce_scatter_tensor, broadcast, barrier).
  bool prof_all = true;
  std::vector<std::string> prof_ops = {};
  // Names an operation together with its caller.
  bool debug = false;
};

// FlopsProfilerConfig configures the profile of one step: rank 0 reports its operations, parameters
// and times once.
struct FlopsProfilerConfig {
  // Enables the profile.
  bool enabled = false;
  // Index of the step, from 0 as DeepSpeed's global_steps: 1 is the second one.
  int64_t profile_step = 1;
  // Levels of the model that are broken down; -1: all.
  int64_t module_depth = -1;
  // Modules that are listed per level, the most expensive first.
  int64_t top_modules = 1;
  // Adds a line for every block to the totals.
  bool detailed = true;
  // Path of the profile; empty: standard output.
  std::string output_file = "";
  // Factor by which forward cost counts again for recompute; 0: derived from the recompute in use.
  double recompute_fwd_factor = 0;

  // Returns the index of the step to profile; nullopt: none.
  std::optional<int64_t> profiled_step() const {
    return enabled ? std::optional(profile_step) : std::nullopt;
  }
};

// LogLevel is the lowest level that the program prints. kInfo is the usual output; kDebug adds
// detail; kWarning keeps warnings, kError and kCritical only errors that end the run.
enum class LogLevel { kDebug, kInfo, kWarning, kError, kCritical };

}  // namespace zeroth::configs
