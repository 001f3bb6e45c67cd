// Ctrl-Z, and a batch system that suspends jobs.
#pragma once

#include <vector>

#include "launcher/run/rank_process.h"

namespace zeroth::launcher {

// Stops the ranks that run, then this process as SIGTSTP does by default (not where nobody could
// continue it). When somebody has continued it, the ranks that it stopped go on. Ranks are in
// groups of their own, which a terminal does not reach.
void suspend_with(const std::vector<const RankProcess*>& ranks);

}  // namespace zeroth::launcher
