// Tests whether a host of a hostfile is the machine on which this process runs.
#pragma once

#include <boost/asio/ip/address.hpp>
#include <string>

namespace zeroth::launcher {

// Returns whether the address belongs to this machine: the system binds to no other address.
bool is_local_address(const boost::asio::ip::address& address);

// Returns whether `host` is "localhost", this machine's name as in the kernel, in full or up to its
// first dot, an address of it, or a name that resolves to one, for which name servers may take some
// seconds. Returns false for a host with a user before it and for one that cannot be resolved.
bool is_this_machine(const std::string& host);

}  // namespace zeroth::launcher
