#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "configs/resolve/context.h"

namespace zeroth::configs {
namespace {

constexpr std::array<std::string_view, 5> kLevels = {"debug", "info", "warning", "error",
                                                     "critical"};  // in the order of LogLevel

// Names of the operations in the communication logger's output.
constexpr std::array<std::string_view, 5> kOperations = {
    "all_reduce", "all_gather_into_tensor", "reduce_scatter_tensor", "broadcast", "barrier"};

void fill_monitor(Context& context, const std::string& section, MonitorConfig& monitor) {
  context.read(section + ".enabled", monitor.enabled);
  context.read(section + ".output_path", monitor.output_path);
  context.read(section + ".job_name", monitor.job_name);
}

void warn_of_services(Context& context) {
  for (const std::string& service : enabled_services(context.keys)) {
    warn(context.notes, service,
         "{}: external services are not supported; the curves are lost unless the program writes "
         "them to files, as finetune does",
         service);
  }
}

void fill_comms_logger(Context& context, CommsLoggerConfig& logger) {
  context.read("comms_logger.enabled", logger.enabled);
  context.read("comms_logger.verbose", logger.verbose);
  context.read("comms_logger.prof_all", logger.prof_all);
  context.read("comms_logger.prof_ops", logger.prof_ops);
  context.read("comms_logger.debug", logger.debug);
  for (const std::string& name : logger.prof_ops) {
    if (std::find(kOperations.begin(), kOperations.end(), name) != kOperations.end()) continue;
    warn(context.notes, "comms_logger.prof_ops",
         "comms_logger.prof_ops: unknown operation {}; known: {}", name,
         fmt::join(kOperations, ", "));
  }
}

void fill_flops_profiler(Context& context, FlopsProfilerConfig& profiler) {
  context.read("flops_profiler.enabled", profiler.enabled);
  context.read("flops_profiler.profile_step", profiler.profile_step);
  context.read("flops_profiler.module_depth", profiler.module_depth);
  context.read("flops_profiler.top_modules", profiler.top_modules);
  context.read("flops_profiler.detailed", profiler.detailed);
  context.read("flops_profiler.output_file", profiler.output_file);
  context.read("flops_profiler.recompute_fwd_factor", profiler.recompute_fwd_factor);
}

}  // namespace

std::vector<std::string> enabled_services(const CheckedKeys& keys) {
  std::vector<std::string> services;
  for (const char* service : {"wandb", "comet"}) {
    if (keys.get<bool>(fmt::format("{}.enabled", service)).value_or(false)) {
      services.emplace_back(service);
    }
  }
  return services;
}

const char* to_string(LogLevel level) {
  return kLevels.at(static_cast<size_t>(level)).data();
}

void fill_report(Context& context, Config& config) {
  context.read("steps_per_print", config.steps_per_print);
  if (config.steps_per_print == kInfinity) config.steps_per_print = 0;
  context.read("wall_clock_breakdown", config.wall_clock_breakdown);
  context.read("memory_breakdown", config.memory_breakdown);
  context.read("dump_state", config.dump_state);
  const auto level = context.keys.get<std::string>("log_level");
  for (size_t i = 0; i < kLevels.size(); ++i) {
    if (level == kLevels[i]) config.log_level = static_cast<LogLevel>(i);
  }
  fill_monitor(context, "csv_monitor", config.csv_monitor);
  fill_monitor(context, "tensorboard", config.tensorboard);
  warn_of_services(context);
  fill_comms_logger(context, config.comms_logger);
  fill_flops_profiler(context, config.flops_profiler);
}

}  // namespace zeroth::configs
