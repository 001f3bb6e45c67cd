// Whether a host of a hostfile is the machine on which this process runs.
#pragma once

#include <boost/asio/ip/address.hpp>
#include <string>

namespace zeroth::launcher {

// The system binds to no address but its own.
bool is_local_address(const boost::asio::ip::address& address);

// "localhost", this machine's name as the kernel has it, whole or up to its first dot, an address
// of it, or a name that resolves to one, for which name servers may take some seconds. Not with a
// user before it, and not what cannot be resolved.
bool is_this_machine(const std::string& host);

}  // namespace zeroth::launcher
