// This machine as a host that goes to a run by itself, rather than being asked.
#pragma once

#include <vector>

#include "launcher/cluster/cluster_plan.h"
#include "launcher/cluster/messages.h"

namespace zeroth::launcher {

// Its name, and how many ranks the flags, the hostfile and what is there leave it. Throws
// UsageError.
Join make_join_offer(const LaunchOptions& options, const Placement& placement);

// Slots 0 to count - 1.
std::vector<int> first_slots(int count);

// Goes to the run at `placement.join` with the secret of ZEROTH_SECRET, and is its agent to the end
// (agent.h), whose status it returns. Throws a UsageError where there is no secret, an Error where
// the run's launcher cannot be reached within --elastic-wait.
int join_run(const LaunchOptions& options, const Placement& placement);

// Of ZEROTH_SECRET. Throws a UsageError where it is not set.
std::string join_secret();

}  // namespace zeroth::launcher
