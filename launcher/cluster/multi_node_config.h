// A run on hosts as the flags ask for it.
#pragma once

#include "launcher/cluster/cluster_plan.h"
#include "launcher/cluster/launch_multi_node.h"
#include "launcher/flags/cli.h"

namespace zeroth::launcher {

// Keeps copies of both. What is left to set are the time, the terminal, rank logs, where lines for
// the user go, and the secret where hosts join.
MultiNodeConfig make_multi_node_config(const LaunchOptions& options, const ClusterPlan& plan);

}  // namespace zeroth::launcher
