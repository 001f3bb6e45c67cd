#include "trainer/requested_monitors.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/utsname.h>

#include <algorithm>
#include <array>
#include <ctime>
#include <filesystem>
#include <string>
#include <vector>

namespace zeroth::trainer {
namespace {

namespace fs = std::filesystem;

// Returns a name like "Nov23_13-36-30_node7".
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

void enable_csv(const configs::MonitorConfig& requested, configs::Resolved& resolved) {
  resolved.config.csv_monitor = requested;
  for (const char* field : {"enabled", "output_path", "job_name"}) {
    resolved.origins[fmt::format("csv_monitor.{}", field)] = "--report_to";
  }
}

// Returns how a service imports the files in `directory`.
std::string import_hint(const std::vector<std::string>& services, const fs::path& directory) {
  const auto names_service = [&](const char* name) {
    return std::find(services.begin(), services.end(), name) != services.end();
  };
  std::vector<std::string> import_commands;
  if (names_service("wandb")) {
    import_commands.push_back(
        fmt::format("`wandb sync --sync-tensorboard {}`", directory.string()));
  }
  if (names_service("swanlab")) {
    import_commands.push_back(
        fmt::format("`swanlab convert -t tensorboard --tb-log-dir {}`", directory.string()));
  }
  if (import_commands.size() < services.size()) {
    import_commands.emplace_back("the service's own import of TensorBoard's files or of CSV files");
  }
  return fmt::format("{} is imported by {}", directory.string(),
                     fmt::join(import_commands, " and "));
}

// Warns that no service is reached. `source`: "--report_to wandb mlflow", or the key.
void warn_about_services(const std::string& source, const std::vector<std::string>& services,
                         const fs::path& directory, configs::Diagnostics& notes) {
  warn(notes, source.starts_with("--") ? "--report_to" : source,
       "{}: no service is reached from here; the curves go to files for TensorBoard and to CSV "
       "files. {}",
       source, import_hint(services, directory));
}

// Adds one warning about the services that --report_to names, and one for each section that it does
// not name. Trainer's name for the section "comet" is comet_ml.
void warn_about_services(const Flags& flags, const fs::path& directory,
                         configs::Resolved& resolved) {
  const std::vector<std::string>& named = flags.report_to.services;
  if (!named.empty()) {
    warn_about_services(fmt::format("--report_to {}", fmt::join(named, " ")), named, directory,
                        resolved.notes);
  }
  for (const std::string& section : resolved.services) {
    std::erase_if(resolved.notes, [&](const auto& note) { return note.key == section; });
    const bool is_named = std::any_of(named.begin(), named.end(), [&](const std::string& name) {
      return name == section || name == section + "_ml";
    });
    if (!is_named) warn_about_services(section, {section}, directory, resolved.notes);
  }
}

}  // namespace

RequestedMonitors request_monitors(const Flags& flags, bool resumes, configs::Resolved& resolved) {
  const ReportTo& report = flags.report_to;
  const bool services = !report.services.empty() || !resolved.services.empty();
  RequestedMonitors requested;
  if (!report.tensorboard && !services) {
    if (!report.directory.empty()) {
      note(resolved.notes, "--logging_dir",
           "--logging_dir: no effect without --report_to tensorboard");
    }
    return requested;
  }
  configs::MonitorConfig files{.enabled = true, .output_path = report.directory, .job_name = ""};
  if (report.directory.empty()) {
    files.output_path = (fs::path(flags.output) / "runs").string();
    files.job_name = requested.run_name = new_run_name();
  }
  const fs::path directory = files.job_name.empty() ? fs::path(files.output_path)
                                                    : fs::path(files.output_path) / files.job_name;
  requested.tensorboard = {.directory = directory, .origin = "--report_to tensorboard"};
  if ((report.csv || services) && !resolved.config.csv_monitor.enabled) enable_csv(files, resolved);
  const bool continues = resumes || flags.resume.is_on();
  warn_about_services(flags, continues ? fs::path(files.output_path) : directory, resolved);
  return requested;
}

}  // namespace zeroth::trainer
