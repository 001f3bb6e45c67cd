// The address and the network interface by which ranks of different nodes reach each other.
#pragma once

#include <string>

namespace zeroth::comm {

struct RankEnv;

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
