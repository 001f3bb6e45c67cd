// Under which address other machines reach this one.
#pragma once

#include <netdb.h>

#include <memory>
#include <string>
#include <vector>

namespace zeroth::comm {

// The address of this machine from which packets to `peer` (a name or a number, with a port) leave:
// the route decides, not this machine's name, which often stands for 127.0.1.1. Where that is a
// loopback address, because `peer` is this machine, the one of the default route, if there is one.
// No packet is sent. Throws an Error that names the peer where there is no route.
std::string source_address(const std::string& peer, int port);

// `master`; or, where that name stands for a loopback address on its own machine, as Debian has it,
// the address of the default route, for other machines know the name by that. Throws an Error where
// the name has no address.
std::string reachable_address(const std::string& master, int port);

struct InterfaceAddress {
  std::string interface, address;
};

// All of this machine, IPv4 and IPv6, in the system's order. Throws an Error.
std::vector<InterfaceAddress> interface_addresses();

// The first address of a network interface. Throws an Error that names it where it has none.
std::string address_of_interface(const std::string& interface);

using Addresses = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

// Those of MASTER_ADDR, a name or a number, for sockets of this type (SOCK_STREAM, SOCK_DGRAM).
// Throws an Error where it has none.
Addresses resolve_master(const std::string& name, int port, int socket_type);

// "127.0.0.1", "localhost", "::1", ...
bool is_loopback(const std::string& address);

}  // namespace zeroth::comm
