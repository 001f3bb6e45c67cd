// The monitors of a run, together.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "configs/config.h"
#include "monitor/monitor.h"

namespace zeroth::monitor {

// Points of one moment, under either kind of names.
struct Events {
  std::vector<Event> deepspeed;
  std::vector<Event> trainer;
};

// Event files for TensorBoard with Trainer's names.
struct TrainerEventFiles {
  std::filesystem::path directory;  // empty: there are none
  std::string origin;               // what asks for them, for messages: "--report_to tensorboard"
};

// A monitor that fails while the run goes on says so once and is left out from then on: a full disk
// does not end a training.
class Monitors {
 public:
  using Warn = std::function<void(const std::string&)>;

  // No monitor at all.
  Monitors() = default;
  // Those that `config` switches on have DeepSpeed's names. Makes the folders and tries to write
  // there. Throws an Error that names key or flag and the path.
  Monitors(const configs::Config& config, const TrainerEventFiles& trainer, Warn warn);

  void write(const Events& events);
  // Those that write into the folder `created`, which was made for this process, write into
  // `previous`, which is there, from now on. What they have begun in `created` goes. So for
  // failures.
  void resume_in(const std::filesystem::path& previous, const std::filesystem::path& created);
  // The run resumes after `step`, where it had trained on `samples`.
  void resume_from(int64_t step, int64_t samples);
  // The run begins anew after a try that began at `since` and saved no checkpoint. Of the monitors
  // those are meant that write where that one did, into one of its `directories`.
  void start_over(const std::vector<std::string>& directories, double since);
  std::vector<std::string> directories() const;
  bool any() const { return !open_.empty(); }
  // "csv_monitor in logs/job", one per monitor.
  std::vector<std::string> lines() const;

 private:
  struct OpenMonitor {
    std::string key;     // "csv_monitor"
    std::string origin;  // what asks for it
    EventNames names;
    std::string directory;  // where it writes
    std::unique_ptr<Monitor> monitor;
  };

  void open(const std::string& key, const std::string& origin, EventNames names,
            const std::filesystem::path& directory);
  void each(const std::function<void(OpenMonitor&)>& action);

  Warn warn_;
  std::vector<OpenMonitor> open_;
};

}  // namespace zeroth::monitor
