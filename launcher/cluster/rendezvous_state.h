// The rule for starting an attempt of an elastic run. Pure.
#pragma once

#include <chrono>

#include "launcher/flags/elastic_flags.h"

namespace zeroth::launcher {

struct RendezvousState {
  int num_usable = 0;                   // nodes that could run ranks now
  int num_pending = 0;                  // nodes that have not answered yet
  std::chrono::milliseconds waited{0};  // since the previous attempt ended, or the launcher started
  std::chrono::milliseconds since_quorum{0};  // since there was a quorum
};

struct RendezvousTimeouts {
  std::chrono::milliseconds last_call;     // for pending nodes, once there is a quorum
  std::chrono::milliseconds join_timeout;  // for a quorum
};

enum class RendezvousAction { kWait, kStart, kGiveUp };

// Decides as torch's rendezvous does: starts at once with the maximum number of nodes or if none is
// pending; starts with a quorum after the last call. Nodes beyond the maximum are spares.
RendezvousAction next_action(const NodeRange& range, const RendezvousState& rendezvous_state,
                             const RendezvousTimeouts& timeouts);

}  // namespace zeroth::launcher
