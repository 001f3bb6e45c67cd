// At which of its addresses hosts reach this machine.
#pragma once

#include <boost/asio/ip/address.hpp>
#include <functional>
#include <string>
#include <vector>

namespace zeroth::launcher {

struct LocalAddresses {
  std::vector<boost::asio::ip::address> addresses;  // each once
  std::vector<std::string>
      unknown;  // hosts whose name is not known here, as ssh's configuration may
};

// For each host the local end of the route to it; loopback for this machine by such a name. Sends
// nothing but questions to name servers, which may take some seconds. For hosts that are unknown:
// all addresses of this machine but loopback and those of one link only. `hosts` may be USER@HOST.
LocalAddresses local_addresses_for(const std::vector<std::string>& hosts);

// All of this machine but loopback and those of one link only.
std::vector<boost::asio::ip::address> all_local_addresses();

// MASTER_ADDR: where other hosts reach rank 0's host. `agent_addresses`: each host's agent as the
// launcher sees it, rank 0's first; `launcher_addresses`: the launcher as each of these sees it.
// Pure.
std::string choose_master_addr(const std::vector<boost::asio::ip::address>& agent_addresses,
                               const std::vector<boost::asio::ip::address>& launcher_addresses);

}  // namespace zeroth::launcher
