// MASTER_ADDR and MASTER_PORT, for rank programs that meet there. Those of Zeroth do not: see
// comm/rank_bootstrap.h.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>

namespace zeroth::launcher {

// Throws an Error unless `address`, a number or a name, belongs to this machine: with any other,
// ranks would wait in silence for a store that never comes.
void check_master_addr(const std::string& address, bool all_ranks_here = true);

// Returns once `address` is a number or a name that can be resolved. Tries again until `limit` has
// passed, of which `say` is told; then throws an Error. A try may take some seconds more.
void wait_for_address(const std::string& address, std::chrono::milliseconds limit,
                      const std::function<void(const std::string& line)>& log);

// The given port if it can be listened on, else an Error that names it; without one, a port that is
// free now.
int resolve_master_port(std::optional<int> port);

}  // namespace zeroth::launcher
