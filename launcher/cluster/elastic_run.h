// A run on nodes in restart attempts: a loss ends an attempt, and the next one uses the nodes that
// are present.
#pragma once

#include "launcher/cluster/launch_multi_node.h"

namespace zeroth::launcher {

// Runs an elastic run; see launch_multi_node. `config.elastic` must be set. A rank, agent or node
// that is lost ends the attempt on all nodes. While restarts are left, the next attempt starts with
// the nodes that are present, in the order of the hostfile and then of their arrival. Nodes that
// arrive during an attempt are added after the ranks, at the launcher's request, have saved. Nodes
// beyond the maximum wait as spares. Each attempt's rank 0 is on a node that is present. A silent
// agent is excluded from the run; it ends its ranks when it notices. Throws an Error, as
// launch_multi_node does, if all nodes have answered and too few can run their ranks before the
// first attempt.
JobOutcome run_elastic(const MultiNodeConfig& config);

}  // namespace zeroth::launcher
