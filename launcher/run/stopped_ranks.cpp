#include "launcher/run/stopped_ranks.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <utility>

namespace zeroth::launcher {

std::string StoppedRanks::tell(const std::vector<StoppedRank>& stopped, size_t running) {
  if (stopped == std::exchange(told_, stopped)) return "";
  if (stopped.empty()) return "all ranks go on";
  std::vector<int> ranks;
  std::vector<pid_t> pids;
  for (const StoppedRank& rank : stopped) {
    ranks.push_back(rank.rank);
    pids.push_back(rank.pid);
  }
  const bool all = stopped.size() == running;
  const bool one = ranks.size() == 1;
  return fmt::format("{} stopped (SIGSTOP or a debugger): {}; to let {} go on: kill -CONT {}",
                     all && !one ? "all ranks are"
                                 : fmt::format("rank{} {} {}", one ? "" : "s",
                                               fmt::join(ranks, ", "), one ? "is" : "are"),
                     all   ? "nothing happens until somebody continues the job"
                     : one ? "the others will wait for it"
                           : "the others will wait for them",
                     one ? "it" : "them", fmt::join(pids, " "));
}

}  // namespace zeroth::launcher
