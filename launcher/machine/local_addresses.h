// The addresses of this machine, and those at which rank 0 is reached: MASTER_ADDR and MASTER_PORT,
// for programs whose ranks connect there. Zeroth's own programs do not: see
// comm/bootstrap/rank_bootstrap.h.
#pragma once

#include <boost/asio/ip/address.hpp>
#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace zeroth::launcher {

struct LocalAddresses {
  std::vector<boost::asio::ip::address> addresses;  // each once
  std::vector<std::string> unknown;  // hosts whose names this machine cannot resolve, such as
                                     // aliases of ssh's configuration
};

// Returns for each host the local end of the route to it; loopback if the name means this machine.
// Sends nothing except queries to name servers, which may take some seconds. Unknown hosts add all
// addresses of this machine except loopback and link-local ones. `hosts` may be USER@HOST.
LocalAddresses local_addresses_for(const std::vector<std::string>& hosts);

// Returns all addresses of this machine except loopback and link-local ones.
std::vector<boost::asio::ip::address> all_local_addresses();

// Returns MASTER_ADDR: the address at which other nodes reach rank 0's node. `agent_addresses` has
// each node's agent as seen by the launcher, rank 0's first; `launcher_addresses` has the launcher
// as seen by each of them. Pure.
std::string choose_master_addr(const std::vector<boost::asio::ip::address>& agent_addresses,
                               const std::vector<boost::asio::ip::address>& launcher_addresses);

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

// Returns whether the address belongs to this machine: the system binds to no other address.
bool is_local_address(const boost::asio::ip::address& address);

// Returns whether `host` is "localhost", this machine's name as in the kernel, in full or up to its
// first dot, an address of it, or a name that resolves to one, for which name servers may take some
// seconds. Returns false for a host with a user before it and for one that cannot be resolved.
bool is_this_machine(const std::string& host);

}  // namespace zeroth::launcher
