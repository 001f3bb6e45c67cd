// The addresses and network interfaces by which ranks of different nodes reach each other.
#pragma once

#include <netdb.h>

#include <memory>
#include <string>
#include <vector>

namespace zeroth::comm {

struct RankEnv;

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

// Returns the interface with this address of this node; empty if none has it.
std::string interface_with_address(const std::string& address);

// Returns this node's address for ranks of other nodes: MASTER_ADDR if that is a loopback address,
// else the address of the route to it. Throws an Error like source_address().
std::string inter_node_address(const RankEnv& env);

// Returns NCCL_SOCKET_IFNAME for a run on several nodes, or the interface that the user has set for
// all other traffic (GLOO_SOCKET_IFNAME), in NCCL's notation for an exact match. Empty if NCCL
// chooses.
std::string nccl_interface(const RankEnv& env);

// Sets NCCL_SOCKET_IFNAME to nccl_interface(), unless the user has set it. NCCL reads it when its
// first group is made.
void set_nccl_interface(const RankEnv& env);

// Returns the interface of a run on several nodes for a person: nccl_interface() if `by_nccl`, else
// the user's setting, or the interface of the route to the master. Empty if NCCL chooses or if it
// is unknown.
std::string inter_node_interface(const RankEnv& env, bool by_nccl);

}  // namespace zeroth::comm
