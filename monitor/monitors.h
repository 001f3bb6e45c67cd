// The set of all monitors of a run.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "configs/config.h"
#include "monitor/monitor.h"

namespace zeroth::monitor {

// Points of one moment, under both naming schemes.
struct Events {
  std::vector<Event> deepspeed;
  std::vector<Event> trainer;
};

// Event files for TensorBoard with Trainer's names.
struct TrainerEventFiles {
  std::filesystem::path directory;  // empty: no event files
  std::string origin;  // flag that requests them, for messages: "--report_to tensorboard"
};

// Monitors owns a run's monitors. A monitor that fails during the run is reported once and then
// dropped: a full disk does not end a training run.
class Monitors {
 public:
  using Warn = std::function<void(const std::string&)>;

  // Constructs an empty set.
  Monitors() = default;
  // Opens the monitors that `config` enables, with DeepSpeed's names, and those of `trainer`.
  // Creates their directories and tests that they are writable. Throws an Error that names the key
  // or flag and the path.
  Monitors(const configs::Config& config, const TrainerEventFiles& trainer, Warn warn);

  void write(const Events& events);
  // Moves each monitor that writes into `created`, a directory made for this process, to the
  // existing directory `previous`, and deletes its event files in `created`. A monitor that fails
  // is reported once and dropped.
  void resume_in(const std::filesystem::path& previous, const std::filesystem::path& created);
  // Resumes after `step`, at which the run had trained on `samples` samples.
  void resume_from(int64_t step, int64_t samples);
  // Starts over after an attempt that began at `since` and saved no checkpoint. Affects only the
  // monitors that write into one of that attempt's `directories`.
  void start_over(const std::vector<std::string>& directories, double since);
  std::vector<std::string> directories() const;
  bool any() const { return !open_.empty(); }
  // Returns "csv_monitor in logs/job", one line per monitor.
  std::vector<std::string> lines() const;

 private:
  struct OpenMonitor {
    std::string key;     // "csv_monitor"
    std::string origin;  // key or flag that requests it
    EventNames names;
    std::string directory;  // directory to which it writes
    std::unique_ptr<Monitor> monitor;
  };

  void each(const std::function<void(OpenMonitor&)>& action);

  Warn warn_;
  std::vector<OpenMonitor> open_;
};

}  // namespace zeroth::monitor
