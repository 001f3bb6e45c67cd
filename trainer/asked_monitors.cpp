#include "trainer/asked_monitors.h"

#include <fmt/format.h>
#include <sys/utsname.h>

#include <array>
#include <ctime>
#include <filesystem>
#include <string>

namespace zeroth::trainer {
namespace {

// "Nov23_13-36-30_node7"
std::string new_run_name() {
  utsname names{};
  ::uname(&names);
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  ::localtime_r(&now, &parts);
  std::array<char, 32> text{};
  std::strftime(text.data(), text.size(), "%b%d_%H-%M-%S", &parts);
  return fmt::format("{}_{}", text.data(), names.nodename);
}

void switch_on(configs::MonitorConfig& monitor, const configs::MonitorConfig& asked,
               const std::string& key, configs::Origins& origins) {
  if (monitor.enabled) return;
  monitor = asked;
  for (const char* field : {"enabled", "output_path", "job_name"}) {
    origins[fmt::format("{}.{}", key, field)] = "--report_to";
  }
}

}  // namespace

void switch_monitors_on(const Flags& flags, configs::Resolved& resolved) {
  const ReportTo& report = flags.report_to;
  configs::MonitorConfig asked{.enabled = true, .output_path = report.folder, .job_name = ""};
  if (report.folder.empty()) {
    asked.output_path = (std::filesystem::path(flags.output) / "runs").string();
    asked.job_name = new_run_name();
  }
  configs::Config& config = resolved.config;
  if (report.tensorboard) switch_on(config.tensorboard, asked, "tensorboard", resolved.origins);
  if (report.csv) switch_on(config.csv_monitor, asked, "csv_monitor", resolved.origins);
}

std::string run_name(const Flags& flags, const configs::Config& config,
                     const configs::Origins& origins) {
  if (!flags.report_to.folder.empty()) return "";
  const auto is_asked = [&](const char* key) {
    const auto origin = origins.find(key);
    return origin != origins.end() && origin->second == "--report_to";
  };
  if (is_asked("tensorboard.job_name")) return config.tensorboard.job_name;
  return is_asked("csv_monitor.job_name") ? config.csv_monitor.job_name : "";
}

}  // namespace zeroth::trainer
