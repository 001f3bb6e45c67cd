#include "monitor/monitors.h"

#include <fmt/format.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "base/machine/file_descriptor.h"
#include "base/machine/process_limits.h"
#include "monitor/csv_monitor.h"
#include "monitor/tensorboard.h"

namespace zeroth::monitor {
namespace {

namespace fs = std::filesystem;

// Creates the directory, and a temporary file in it. `origin` names the flag or key in errors.
void require_directory(const fs::path& directory, const std::string& origin) {
  const auto refuse = [&](const std::string& reason) {
    throw Error("{}: nothing can be written to {}: {}", origin, directory.string(), reason);
  };
  std::error_code failure;
  fs::create_directories(directory, failure);
  if (failure) refuse(system_reason(failure.value()));
  std::string probe = (directory / ".probe-XXXXXX").string();
  if (FileDescriptor(::mkstemp(probe.data())).get() < 0) refuse(system_reason(errno));
  ::unlink(probe.c_str());
}

std::unique_ptr<Monitor> make_monitor(const std::string& key, const fs::path& directory) {
  if (key == "csv_monitor") return std::make_unique<CsvMonitor>(directory);
  return std::make_unique<TensorBoard>(directory);
}

}  // namespace

Monitors::Monitors(const configs::Config& config, const TrainerEventFiles& trainer, Warn warn)
    : warn_(std::move(warn)) {
  const auto open_section = [&](const std::string& key, const configs::MonitorConfig& section) {
    if (!section.enabled) return;
    const fs::path directory = fs::path(section.output_path) / section.job_name;
    require_directory(directory, fmt::format("{}.output_path \"{}\"", key, section.output_path));
    open_.push_back(
        {key, key, EventNames::kDeepSpeed, directory.string(), make_monitor(key, directory)});
  };
  open_section("csv_monitor", config.csv_monitor);
  open_section("tensorboard", config.tensorboard);
  if (trainer.directory.empty()) return;
  require_directory(trainer.directory, trainer.origin);
  open_.push_back({"tensorboard", trainer.origin, EventNames::kTrainer, trainer.directory.string(),
                   std::make_unique<TensorBoard>(trainer.directory)});
}

void Monitors::write(const Events& events) {
  each([&](OpenMonitor& open) {
    open.monitor->write(open.names == EventNames::kTrainer ? events.trainer : events.deepspeed);
  });
}

void Monitors::resume_from(int64_t step, int64_t samples) {
  each([&](OpenMonitor& open) {
    open.monitor->resume_from(open.names == EventNames::kTrainer ? step : samples);
  });
}

void Monitors::start_over(const std::vector<std::string>& directories, double since) {
  each([&](OpenMonitor& open) {
    const bool is_same =
        std::find(directories.begin(), directories.end(), open.directory) != directories.end();
    if (is_same) open.monitor->start_over(since);
  });
}

std::vector<std::string> Monitors::directories() const {
  std::vector<std::string> directories;
  for (const OpenMonitor& open : open_) directories.push_back(open.directory);
  return directories;
}

void Monitors::resume_in(const fs::path& previous, const fs::path& created) {
  each([&](OpenMonitor& open) {
    if (open.directory != created.string()) return;
    open.monitor = make_monitor(open.key, previous);
    open.directory = previous.string();
  });
  std::error_code ignored;  // remaining files show as a run without a step
  for (const auto& entry : fs::directory_iterator(created, ignored)) {
    if (entry.path().filename().string().starts_with(kEventFile)) fs::remove(entry, ignored);
  }
  ::rmdir(created.c_str());
}

void Monitors::each(const std::function<void(OpenMonitor&)>& action) {
  std::erase_if(open_, [&](OpenMonitor& open) {
    try {
      action(open);
      return false;
    } catch (const Error& error) {
      warn_(fmt::format("{}: {}; it is disabled, training continues", open.origin, error.what()));
      return true;
    }
  });
}

std::vector<std::string> Monitors::lines() const {
  std::vector<std::string> lines;
  for (const OpenMonitor& open : open_)
    lines.push_back(fmt::format("{} in {}", open.key, open.directory));
  return lines;
}

}  // namespace zeroth::monitor
