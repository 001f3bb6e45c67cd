// Flags about saving a run's state and resuming from it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace zeroth::trainer {

struct ResumeFlags {
  enum class From {
    kNothing,
    kNewest,           // in --output; an Error if there is none
    kNewestOrNothing,  // the run starts from scratch if there is none
    kNamed
  };
  From from = From::kNothing;
  std::string directory;                // kNamed: of one checkpoint, or of several
  bool allow_batch_change = false;      // --allow-batch-change
  std::vector<std::string> may_change;  // --allow-change: keys of the configuration

  bool is_on() const { return from != From::kNothing; }
};

struct StateFlags {
  bool only_model = false;              // --save_only_model: no run can resume from what is saved
  std::optional<double> every_minutes;  // --save-minutes
  bool sync = false;                    // --save-sync: training waits for a save
  std::optional<double> grace_s;        // --grace: maximum seconds from a signal to the exit
  bool allow_small_disk = false;  // --allow-small-disk: --output may be too small at the start
  int64_t max_save_failures = 3;  // --save-failures: saves in a row that may fail
};

}  // namespace zeroth::trainer
