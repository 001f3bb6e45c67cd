#include "monitor/monitors.h"

#include <fmt/format.h>
#include <stdlib.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "base/file_descriptor.h"
#include "base/process_limits.h"
#include "monitor/csv_monitor.h"
#include "monitor/tensorboard.h"

namespace zeroth::monitor {
namespace {

namespace fs = std::filesystem;

// Makes output_path/job_name, and a file in it for a moment.
fs::path job_folder(const std::string& key, const configs::MonitorConfig& config) {
  const fs::path folder = fs::path(config.output_path) / config.job_name;
  const auto refuse = [&](const std::string& reason) {
    throw Error("{}.output_path \"{}\": nothing can be written to {}: {}", key, config.output_path,
                folder.string(), reason);
  };
  std::error_code failure;
  fs::create_directories(folder, failure);
  if (failure) refuse(system_reason(failure.value()));
  std::string probe = (folder / ".probe-XXXXXX").string();
  if (FileDescriptor(::mkstemp(probe.data())).get() < 0) refuse(system_reason(errno));
  ::unlink(probe.c_str());
  return folder;
}

std::unique_ptr<Monitor> make_monitor(const std::string& key, const fs::path& folder) {
  if (key == "csv_monitor") return std::make_unique<CsvMonitor>(folder);
  return std::make_unique<TensorBoard>(folder);
}

}  // namespace

Monitors::Monitors(const configs::Config& config, Warn warn) : warn_(std::move(warn)) {
  if (config.csv_monitor.enabled) {
    const fs::path folder = job_folder("csv_monitor", config.csv_monitor);
    open_.push_back({"csv_monitor", folder.string(), make_monitor("csv_monitor", folder)});
  }
  if (config.tensorboard.enabled) {
    const fs::path folder = job_folder("tensorboard", config.tensorboard);
    open_.push_back({"tensorboard", folder.string(), make_monitor("tensorboard", folder)});
  }
}

void Monitors::write(const std::vector<Event>& events) {
  each([&](Open& open) { open.monitor->write(events); });
}

void Monitors::go_on_from(int64_t samples) {
  each([&](Open& open) { open.monitor->go_on_from(samples); });
}

void Monitors::begin_anew(const std::map<std::string, fs::path>& folders, double since) {
  each([&](Open& open) {
    const auto former = folders.find(open.key);
    if (former != folders.end() && former->second == fs::path(open.folder)) {
      open.monitor->begin_anew(since);
    }
  });
}

void Monitors::go_on_in(const fs::path& former, const fs::path& fresh) {
  each([&](Open& open) {
    if (open.folder != fresh.string()) return;
    open.monitor = make_monitor(open.key, former);
    open.folder = former.string();
  });
  std::error_code ignored;  // what stays shows as a run without a step
  for (const auto& entry : fs::directory_iterator(fresh, ignored)) {
    if (entry.path().filename().string().starts_with(kEventFile)) fs::remove(entry, ignored);
  }
  ::rmdir(fresh.c_str());
}

void Monitors::each(const std::function<void(Open&)>& action) {
  std::erase_if(open_, [&](Open& open) {
    try {
      action(open);
      return false;
    } catch (const Error& error) {
      warn_(
          fmt::format("{}: {}; it is off from here on, training goes on", open.key, error.what()));
      return true;
    }
  });
}

std::vector<std::string> Monitors::lines() const {
  std::vector<std::string> lines;
  for (const Open& open : open_) lines.push_back(fmt::format("{} in {}", open.key, open.folder));
  return lines;
}

}  // namespace zeroth::monitor
