// What flags say of saving a run's state, and of going on from it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace zeroth::trainer {

struct ResumeFlags {
  enum class From {
    kNothing,
    kNewest,           // of --output; an Error where there is none
    kNewestOrNothing,  // the run begins anew where there is none
    kNamed
  };
  From from = From::kNothing;
  std::string directory;                // kNamed: of one checkpoint, or of several
  bool allow_batch_change = false;      // --allow-batch-change
  std::vector<std::string> may_change;  // --allow-change: keys of the configuration

  bool is_on() const { return from != From::kNothing; }
};

struct StateFlags {
  bool only_model = false;              // --save_only_model: no run goes on from what is saved
  std::optional<double> every_minutes;  // --save-minutes
  bool sync = false;                    // --save-sync: training waits for what is saved
  std::optional<double> grace_s;        // --grace: from a signal to the end, at most
  bool allow_small_disk = false;        // --allow-small-disk: --output may lack room at the start
  int64_t max_save_failures = 3;        // --save-failures: saves in a row that may fail
};

}  // namespace zeroth::trainer
