// What a run tells about itself: the resolved monitors, profilers and log level. Nothing here
// changes the training.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace zeroth::configs {

// csv_monitor and tensorboard: rank 0 writes Train/Samples/* events, their x the samples trained so
// far, into output_path/job_name/.
struct MonitorConfig {
  // Whether it writes at all.
  bool enabled = false;
  // Folder above job_name; empty: the working folder.
  std::string output_path = "";
  std::string job_name = "DeepSpeedJobName";
};

// Counts, sizes and times of collectives, summed per operation and size; printed when a run ends.
struct CommsLoggerConfig {
  // Whether anything is counted.
  bool enabled = false;
  // Also prints a line for every collective.
  bool verbose = false;
  // All operations are counted, or only those of prof_ops (named as DeepSpeed does: all_reduce,
  // all_gather_into_tensor, reduce_scatter_tensor, broadcast, barrier).
  bool prof_all = true;
  std::vector<std::string> prof_ops = {};
  // Names an operation together with who issued it.
  bool debug = false;
};

// Rank 0 tells the operations, parameters and times of one step, once.
struct FlopsProfilerConfig {
  // Whether a step is profiled.
  bool enabled = false;
  // The step, counted from 0 as DeepSpeed's global_steps: 1 is the second one.
  int64_t profile_step = 1;
  // Levels of the model that are broken down; -1: all.
  int64_t module_depth = -1;
  // Parts that are listed per level, the costliest first.
  int64_t top_modules = 1;
  // A line for every block beside the sums.
  bool detailed = true;
  // Where the profile goes; empty: standard output.
  std::string output_file = "";
  // Forward cost counted again for recompute, as a factor; 0: taken from the recompute in use.
  double recompute_fwd_factor = 0;
};

// What the program prints: everything of this importance and above. kInfo is the usual output;
// kDebug adds detail; kWarning leaves warnings, kError and kCritical only what ends the run.
enum class LogLevel { kDebug, kInfo, kWarning, kError, kCritical };

}  // namespace zeroth::configs
