// Ranks that are stopped (SIGSTOP, a debugger): a job that stands still must not look like one that
// works. Pure.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <string>
#include <vector>

namespace zeroth::launcher {

struct StoppedRank {
  int rank = 0;
  pid_t pid = 0;

  bool operator==(const StoppedRank&) const = default;
};

class StoppedRanks {
 public:
  // What to say of those that are stopped now, out of `running` ranks; empty where nothing has
  // changed since the last call.
  std::string tell(const std::vector<StoppedRank>& stopped, size_t running);

  bool any() const { return !told_.empty(); }

 private:
  std::vector<StoppedRank> told_;
};

}  // namespace zeroth::launcher
