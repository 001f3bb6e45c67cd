// What comms_logger counts: per operation and size how many collectives, how long they took and
// how fast they were.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "comm/group.h"
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
  // GB/s (10^9 bytes).
  struct Bandwidth {
    double algorithm = 0;  // bytes of the whole tensor over time
    double bus = 0;        // what each rank's link carries: comparable between operations
  };

  explicit CommLog(configs::CommsLoggerConfig config) : config_(std::move(config)) {}

  // Whether prof_all or prof_ops ask for the operation.
  bool counts(std::string_view operation) const;
  // `key.operation` as DeepSpeed names it, `key.bytes` of the whole tensor; `what`: whose data it
  // is.
  void add(CollectiveKey key, std::string_view what, double seconds);

  // Bus bandwidth as nccl-tests define it (doc/PERFORMANCE.md): algorithm bandwidth times
  // 2 (n - 1) / n for all-reduce, (n - 1) / n for all-gather, reduce-scatter and all-to-all, 1 for
  // the others.
  static Bandwidth bandwidth(const CollectiveKey& key, double seconds);

  const std::map<CollectiveKey, Total>& totals() const { return totals_; }
  // For a person, in lines; empty when nothing was counted.
  std::vector<std::string> table() const;
  // With `verbose`: a line for each collective since the last call.
  std::vector<std::string> take_lines() { return std::exchange(lines_, {}); }

 private:
  configs::CommsLoggerConfig config_;
  std::map<CollectiveKey, Total> totals_;
  std::vector<std::string> lines_;
};

// Every collective of the group, and of its parts, that `log` counts has ended when its call
// returns, on a GPU too: its time is exact, and nothing overlaps with it. Keeps a reference to
// `log`.
std::unique_ptr<Group> make_logged_group(std::unique_ptr<Group> group, CommLog& log);

}  // namespace zeroth::comm
