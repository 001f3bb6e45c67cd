// MASTER_PORT, for rank programs that meet there. Those of Zeroth do not: see comm/rendezvous.h.
#pragma once

#include <optional>

namespace zeroth::launcher {

// The given port if it can be listened on, else an Error that names it; without one, a port that is
// free now.
int resolve_master_port(std::optional<int> given);

}  // namespace zeroth::launcher
