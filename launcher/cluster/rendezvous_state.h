// The rule for starting an attempt of an elastic run, and messages about its nodes. Pure.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "launcher/flags/host_flags.h"

namespace zeroth::launcher {

struct RendezvousState {
  int num_usable = 0;                   // nodes that could run ranks now
  int num_pending = 0;                  // nodes that have not answered yet
  std::chrono::milliseconds waited{0};  // since the previous attempt ended, or the launcher started
  std::chrono::milliseconds since_quorum{0};  // since there was a quorum
};

enum class RendezvousAction { kWait, kStart, kGiveUp };

// Returns whether so many usable nodes are enough to start.
inline bool has_quorum(const NodeRange& range, int64_t num_usable) {
  return num_usable >= range.min;
}

// Decides as torch's rendezvous does: starts at once with the maximum number of nodes or if none is
// pending; starts with a quorum after `last_call`, the time for pending nodes. `join_timeout` is
// the time for a quorum. Nodes beyond the maximum are spares.
RendezvousAction next_action(const NodeRange& range, const RendezvousState& rendezvous_state,
                             std::chrono::milliseconds last_call,
                             std::chrono::milliseconds join_timeout);

// Returns "host b has joined", "hosts b, c have joined".
std::string describe_joined(const std::vector<std::string>& hosts);

// Returns "host b was sent SIGTERM".
std::string describe_signaled(const std::vector<std::string>& hosts, int signal);

// Returns "1 host of at least 2 available: waiting up to 600 s for more; no answer yet from b".
std::string describe_waiting(size_t num_there, int min_nodes, std::chrono::milliseconds limit,
                             const std::vector<std::string>& silent);

// Explains why a run ends without a quorum; `there` are the nodes that are present.
std::string describe_missing_quorum(const std::vector<std::string>& there, int min_nodes,
                                    std::chrono::milliseconds waited, int requeue_code);

}  // namespace zeroth::launcher
