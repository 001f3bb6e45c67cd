// The effect of --elastic and --max-restarts on where ranks run. Pure.
#pragma once

#include "launcher/cluster/cluster_plan.h"

namespace zeroth::launcher {

// Adapts the placement of an elastic run. The launcher reaches each host of a hostfile by an ssh of
// its own. If zeroth was started on each of several nodes, the one on node 0 becomes the launcher,
// with an agent of its own, and the others join it. Without a hostfile this machine starts alone,
// and others join. A host entry of this machine has no slots yet. Restarts alone keep the hosts as
// they are; on one machine they need nothing here. Throws UsageError on flags that contradict this.
void place_elastic(Placement& placement, const LaunchOptions& options);

}  // namespace zeroth::launcher
