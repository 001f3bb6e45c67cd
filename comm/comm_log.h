// The statistics of comms_logger: per operation and size the number of collectives, their time and
// their bandwidth.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "comm/groups/group.h"
#include "configs/report_config.h"

namespace zeroth::comm {

class CommLog {
 public:
  // Collectives of one kind and size in groups of one size.
  struct CollectiveKey {
    std::string operation;
    int64_t bytes = 0;
    int ranks = 0;
    auto operator<=>(const CollectiveKey&) const = default;
  };
  struct Total {
    int64_t count = 0;
    double seconds = 0;
  };
  // Bandwidths in GB/s (10^9 bytes).
  struct Bandwidth {
    double algorithm = 0;  // bytes of the whole tensor over time
    double bus = 0;        // traffic of each rank's link; comparable between operations
  };

  explicit CommLog(configs::CommsLoggerConfig config) : config_(std::move(config)) {}

  // Returns whether prof_all or prof_ops selects the operation.
  bool counts(std::string_view operation) const;
  // Adds one collective. `key.operation` is DeepSpeed's name for it, `key.bytes` is the size of the
  // whole tensor; `what` names the data.
  void add(CollectiveKey key, std::string_view what, double seconds);

  // Returns bus bandwidth as nccl-tests define it (doc/PERFORMANCE.md): algorithm bandwidth times 2
  // (n - 1) / n for all-reduce, (n - 1) / n for all-gather, reduce-scatter and all-to-all, 1 for
  // the others.
  static Bandwidth bandwidth(const CollectiveKey& key, double seconds);

  const std::map<CollectiveKey, Total>& totals() const { return totals_; }
  // Returns the totals as lines for a person; empty if nothing was counted.
  std::vector<std::string> table() const;
  // Returns a line for each collective since the last call; empty unless `verbose` is set.
  std::vector<std::string> take_lines() { return std::exchange(lines_, {}); }

 private:
  configs::CommsLoggerConfig config_;
  std::map<CollectiveKey, Total> totals_;
  std::vector<std::string> lines_;
};

// Wraps `group` so that every collective of it and of its parts that `log` counts has ended when
// its call returns, on a GPU too: its time is exact, and nothing overlaps with it. Keeps a
// reference to `log`.
std::unique_ptr<Group> make_logged_group(std::unique_ptr<Group> group, CommLog& log);

}  // namespace zeroth::comm
