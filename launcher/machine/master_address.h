// MASTER_ADDR and MASTER_PORT, for programs whose ranks connect there. Zeroth's own programs do
// not: see comm/bootstrap/rank_bootstrap.h.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>

namespace zeroth::launcher {

// Throws an Error unless `address`, a number or a name, belongs to this machine: with any other,
// ranks would silently wait for a store that never starts.
void check_master_addr(const std::string& address, bool all_ranks_here = true);

// Blocks until `address` is a number or a name that can be resolved. Retries until `limit` has
// passed, and reports this to `log`; then throws an Error. One attempt may take some seconds more.
void wait_for_address(const std::string& address, std::chrono::milliseconds limit,
                      const std::function<void(const std::string& line)>& log);

// Returns the given port, or one that is free now if none is given. Throws an Error that names the
// given port if it cannot be listened on.
int resolve_master_port(std::optional<int> port);

}  // namespace zeroth::launcher
