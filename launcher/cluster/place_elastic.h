// What --elastic and --max-restarts make of where ranks run. Pure.
#pragma once

#include "launcher/cluster/cluster_plan.h"

namespace zeroth::launcher {

// Hosts of a hostfile are reached by ssh, each by its own. Where zeroth was started on each of
// several nodes, the one on node 0 becomes the launcher, which has an agent of its own, and the
// others join it. Without a hostfile this machine begins alone, and others join it. A host of this
// machine has no slots yet. Restarts alone keep the hosts as they are; on one machine they need
// nothing here. Throws UsageError on flags that contradict that.
void place_elastic(Placement& placement, const LaunchOptions& options);

}  // namespace zeroth::launcher
