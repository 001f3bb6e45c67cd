// The address and the network interface by which ranks of this machine and of others reach each
// other.
#pragma once

#include <string>

namespace zeroth::comm {

struct RankEnv;

// That of an address of this machine; empty: it has none.
std::string interface_with_address(const std::string& address);

// This machine's, at which ranks of others reach its own: MASTER_ADDR where that is a loopback
// address, else the one of the route to it. Throws an Error as source_address().
std::string inter_node_address(const RankEnv& env);

// Of a run on several machines: as NCCL_SOCKET_IFNAME, or the interface that the user has named for
// all others (GLOO_SOCKET_IFNAME), in NCCL's notation for exactly that one. Empty where NCCL
// chooses by itself.
std::string nccl_interface(const RankEnv& env);

// Sets NCCL_SOCKET_IFNAME to that for NCCL, which reads it when its first group is made. What the
// user has set there stands.
void set_nccl_interface(const RankEnv& env);

// Of a run on several machines, for people: nccl_interface() where `by_nccl`, else what the user
// has named, or that of the route to the master. Empty where NCCL chooses by itself, and where
// nobody knows.
std::string inter_node_interface(const RankEnv& env, bool by_nccl);

}  // namespace zeroth::comm
