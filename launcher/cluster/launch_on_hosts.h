// Runs a job on hosts from its start to its end.
#pragma once

#include "launcher/cluster/cluster_plan.h"
#include "launcher/flags/cli.h"

namespace zeroth::launcher {

// Starts the agents that `plan` names, and through them the ranks; passes output and signals on.
// Returns the status with which the launcher ends, as a run on one machine has it. Throws Error
// where a host cannot be reached or has not what it needs.
int launch_on_hosts(const LaunchOptions& options, const ClusterPlan& plan);

}  // namespace zeroth::launcher
