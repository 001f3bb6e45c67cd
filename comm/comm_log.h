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
  struct Total {
    int64_t count = 0;
    double seconds = 0;
  };
  // GB/s (10^9 bytes).
  struct Bandwidth {
    double algorithm = 0;  // bytes of the whole tensor over time
    double bus = 0;        // what each rank's link carries: comparable between operations
  };

  CommLog(int ranks, configs::CommsLoggerConfig config)
      : ranks_(ranks), config_(std::move(config)) {}

  // Whether prof_all or prof_ops ask for the operation.
  bool counts(std::string_view operation) const;
  // `operation` as DeepSpeed names it; `what`: whose data it is; `bytes`: of the whole tensor.
  void add(std::string_view operation, std::string_view what, int64_t bytes, double seconds);

  // Bus bandwidth as nccl-tests define it (doc/PERFORMANCE.md): algorithm bandwidth times
  // 2 (n - 1) / n for all-reduce, (n - 1) / n for all-gather and reduce-scatter, 1 for the others.
  Bandwidth bandwidth(std::string_view operation, int64_t bytes, double seconds) const;

  // (operation, bytes) -> total.
  const std::map<std::pair<std::string, int64_t>, Total>& totals() const { return totals_; }
  // For a person, in lines; empty when nothing was counted.
  std::vector<std::string> table() const;
  // With `verbose`: a line for each collective since the last call.
  std::vector<std::string> take_lines() { return std::exchange(lines_, {}); }

 private:
  int ranks_;
  configs::CommsLoggerConfig config_;
  std::map<std::pair<std::string, int64_t>, Total> totals_;
  std::vector<std::string> lines_;
};

// Every collective that `log` counts has ended when its call returns, on a GPU too: its time is
// exact, and nothing overlaps with it. Keeps a reference to `log`.
std::unique_ptr<Group> make_logged_group(std::unique_ptr<Group> group, CommLog& log);

}  // namespace zeroth::comm
