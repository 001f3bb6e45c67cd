// The addresses at which other nodes reach this machine.
#pragma once

#include <boost/asio/ip/address.hpp>
#include <functional>
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

}  // namespace zeroth::launcher
