// This machine as a node that joins a run by itself, instead of being started by the launcher.
#pragma once

#include "launcher/cluster/cluster_plan.h"
#include "launcher/transport/messages.h"

namespace zeroth::launcher {

// Returns the node's name and the number of ranks that the flags, the hostfile and the hardware
// allow. Throws UsageError.
Join make_join_offer(const LaunchOptions& options, const Placement& placement);

// Joins the run at `placement.join` with the secret of ZEROTH_SECRET and runs as its agent until
// the end (agent.h). Returns the agent's status. Throws a UsageError if there is no secret, an
// Error if the run's launcher cannot be reached within --elastic-wait.
int join_run(const LaunchOptions& options, const Placement& placement);

// Returns the secret of ZEROTH_SECRET. Throws a UsageError if it is not set.
std::string join_secret();

}  // namespace zeroth::launcher
