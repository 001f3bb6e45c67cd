#include "monitor/monitors.h"

#include <fmt/format.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
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

// Makes the folder, and a file in it for a moment. `origin` names what asks for it in errors.
void require_folder(const fs::path& folder, const std::string& origin) {
  const auto refuse = [&](const std::string& reason) {
    throw Error("{}: nothing can be written to {}: {}", origin, folder.string(), reason);
  };
  std::error_code failure;
  fs::create_directories(folder, failure);
  if (failure) refuse(system_reason(failure.value()));
  std::string probe = (folder / ".probe-XXXXXX").string();
  if (FileDescriptor(::mkstemp(probe.data())).get() < 0) refuse(system_reason(errno));
  ::unlink(probe.c_str());
}

std::unique_ptr<Monitor> make_monitor(const std::string& key, const fs::path& folder) {
  if (key == "csv_monitor") return std::make_unique<CsvMonitor>(folder);
  return std::make_unique<TensorBoard>(folder);
}

}  // namespace

Monitors::Monitors(const configs::Config& config, const TrainerFiles& trainer, Warn warn)
    : warn_(std::move(warn)) {
  const auto open_section = [&](const std::string& key, const configs::MonitorConfig& section) {
    if (!section.enabled) return;
    const fs::path folder = fs::path(section.output_path) / section.job_name;
    require_folder(folder, fmt::format("{}.output_path \"{}\"", key, section.output_path));
    open(key, key, EventNames::kDeepSpeed, folder);
  };
  open_section("csv_monitor", config.csv_monitor);
  open_section("tensorboard", config.tensorboard);
  if (trainer.folder.empty()) return;
  require_folder(trainer.folder, trainer.origin);
  open("tensorboard", trainer.origin, EventNames::kTrainer, trainer.folder);
}

void Monitors::open(const std::string& key, const std::string& origin, EventNames names,
                    const fs::path& folder) {
  open_.push_back({key, origin, names, folder.string(), make_monitor(key, folder)});
}

void Monitors::write(const Events& events) {
  each([&](Open& open) {
    open.monitor->write(open.names == EventNames::kTrainer ? events.trainer : events.deepspeed);
  });
}

void Monitors::go_on_from(int64_t step, int64_t samples) {
  each([&](Open& open) {
    open.monitor->go_on_from(open.names == EventNames::kTrainer ? step : samples);
  });
}

void Monitors::begin_anew(const std::vector<std::string>& folders, double since) {
  each([&](Open& open) {
    const bool is_same = std::find(folders.begin(), folders.end(), open.folder) != folders.end();
    if (is_same) open.monitor->begin_anew(since);
  });
}

std::vector<std::string> Monitors::folders() const {
  std::vector<std::string> folders;
  for (const Open& open : open_) folders.push_back(open.folder);
  return folders;
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
      warn_(fmt::format("{}: {}; it is off from here on, training goes on", open.origin,
                        error.what()));
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
