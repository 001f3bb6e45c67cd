// Under which address other machines reach this one.
#pragma once

#include <string>

namespace zeroth::comm {

// The address of this machine from which packets to `peer` (a name or a number, with a port) leave:
// the route decides, not this machine's name, which often stands for 127.0.1.1. Where that is a
// loopback address, because `peer` is this machine, the one of the default route, if there is one.
// No packet is sent. Throws an Error that names the peer where there is no route.
std::string address_towards(const std::string& peer, int port);

// "127.0.0.1", "localhost", "::1", ...
bool is_loopback(const std::string& address);

}  // namespace zeroth::comm
