// The configuration of a multi-node run, made from the flags.
#pragma once

#include "launcher/cluster/cluster_plan.h"
#include "launcher/cluster/launch_multi_node.h"
#include "launcher/flags/cli.h"

namespace zeroth::launcher {

// Makes the configuration, which keeps copies of both arguments. The caller sets the time, the
// terminal, rank logs, the log callback, and the secret if nodes join.
MultiNodeConfig make_multi_node_config(const LaunchOptions& options, const ClusterPlan& plan);

}  // namespace zeroth::launcher
