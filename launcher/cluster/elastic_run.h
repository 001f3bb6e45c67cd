// A run on hosts in rounds: what is lost ends one, and the next has the hosts that are there.
#pragma once

#include "launcher/cluster/launch_multi_node.h"

namespace zeroth::launcher {

// See launch_multi_node; `config.elastic` is set. A rank, an agent or a host that is lost ends the
// round on all hosts; while restarts are left the next one begins with those that are there, in
// the order of the hostfile and then of their coming. Hosts that come during a round are taken in
// when the ranks have saved, which they are told to do. Those beyond the most that the run may have
// wait as spares. Each round's first rank is on a host that is there. An agent that is silent has
// no part in the run any more: it ends its ranks when it finds out.
// Throws an Error, as launch_multi_node, where all hosts have answered and too few of them can run
// their ranks, before the first round.
JobOutcome run_elastic(const MultiNodeConfig& config);

}  // namespace zeroth::launcher
