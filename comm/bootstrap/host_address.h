// The addresses at which other nodes reach this one.
#pragma once

#include <netdb.h>

#include <memory>
#include <string>
#include <vector>

namespace zeroth::comm {

// Returns the address of this node from which packets to `peer` (a name or a number) and `port`
// leave. The route decides, not this node's name, which often resolves to 127.0.1.1. If that is a
// loopback address, because `peer` is this node, returns the address of the default route, if there
// is one. Sends no packet. Throws an Error that names the peer if there is no route.
std::string source_address(const std::string& peer, int port);

// Returns `master`. If that name resolves to a loopback address on its own node, as on Debian,
// returns the address of the default route instead, which is what other nodes resolve the name to.
// Throws an Error if the name has no address.
std::string reachable_address(const std::string& master, int port);

struct InterfaceAddress {
  std::string interface, address;
};

// Returns all addresses of this node, IPv4 and IPv6, in the system's order. Throws an Error on
// failure.
std::vector<InterfaceAddress> interface_addresses();

// Returns the first address of a network interface. Throws an Error that names it if it has none.
std::string address_of_interface(const std::string& interface);

using Addresses = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

// Resolves MASTER_ADDR, a name or a number, for sockets of this type (SOCK_STREAM, SOCK_DGRAM).
// Throws an Error if it has no address.
Addresses resolve_master(const std::string& name, int port, int socket_type);

// Returns true for "127.0.0.1", "localhost", "::1", ...
bool is_loopback(const std::string& address);

}  // namespace zeroth::comm
