#include "trainer/asked_monitors.h"

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

void switch_csv_on(const configs::MonitorConfig& asked, configs::Resolved& resolved) {
  resolved.config.csv_monitor = asked;
  for (const char* field : {"enabled", "output_path", "job_name"}) {
    resolved.origins[fmt::format("csv_monitor.{}", field)] = "--report_to";
  }
}

// How a service imports what was written into `folder`.
std::string import_text(const std::vector<std::string>& services, const fs::path& folder) {
  const auto asks = [&](const char* name) {
    return std::find(services.begin(), services.end(), name) != services.end();
  };
  std::vector<std::string> ways;
  if (asks("wandb")) {
    ways.push_back(fmt::format("`wandb sync --sync-tensorboard {}`", folder.string()));
  }
  if (asks("swanlab")) {
    ways.push_back(
        fmt::format("`swanlab convert -t tensorboard --tb-log-dir {}`", folder.string()));
  }
  if (ways.size() < services.size()) {
    ways.emplace_back("the service's own import of TensorBoard's files or of CSV files");
  }
  return fmt::format("{} is imported by {}", folder.string(), fmt::join(ways, " and "));
}

// `wish`: "--report_to wandb mlflow", or the key.
void warn_of_services(const std::string& wish, const std::vector<std::string>& services,
                      const fs::path& folder, configs::Notes& notes) {
  warn(notes, wish.starts_with("--") ? "--report_to" : wish,
       "{}: no service is reached from here; the curves go to files for TensorBoard and to CSV "
       "files. {}",
       wish, import_text(services, folder));
}

// One warning for what --report_to names, and one for each section that it does not name. Trainer's
// name for the section "comet" is comet_ml.
void warn_of_services(const Flags& flags, const fs::path& folder, configs::Resolved& resolved) {
  const std::vector<std::string>& named = flags.report_to.services;
  if (!named.empty()) {
    warn_of_services(fmt::format("--report_to {}", fmt::join(named, " ")), named, folder,
                     resolved.notes);
  }
  for (const std::string& section : resolved.services) {
    std::erase_if(resolved.notes, [&](const auto& note) { return note.key == section; });
    const bool is_named = std::any_of(named.begin(), named.end(), [&](const std::string& name) {
      return name == section || name == section + "_ml";
    });
    if (!is_named) warn_of_services(section, {section}, folder, resolved.notes);
  }
}

}  // namespace

AskedMonitors ask_monitors(const Flags& flags, bool resumes, configs::Resolved& resolved) {
  const ReportTo& report = flags.report_to;
  const bool services = !report.services.empty() || !resolved.services.empty();
  AskedMonitors asked;
  if (!report.tensorboard && !services) {
    if (!report.folder.empty()) {
      note(resolved.notes, "--logging_dir",
           "--logging_dir: no effect without --report_to tensorboard");
    }
    return asked;
  }
  configs::MonitorConfig files{.enabled = true, .output_path = report.folder, .job_name = ""};
  if (report.folder.empty()) {
    files.output_path = (fs::path(flags.output) / "runs").string();
    files.job_name = asked.run_name = new_run_name();
  }
  const fs::path folder = files.job_name.empty() ? fs::path(files.output_path)
                                                 : fs::path(files.output_path) / files.job_name;
  asked.tensorboard = {.folder = folder, .origin = "--report_to tensorboard"};
  if ((report.csv || services) && !resolved.config.csv_monitor.enabled)
    switch_csv_on(files, resolved);
  const bool continues = resumes || flags.resume.is_on();
  warn_of_services(flags, continues ? fs::path(files.output_path) : folder, resolved);
  return asked;
}

}  // namespace zeroth::trainer
