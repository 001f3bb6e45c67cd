// When a round of an elastic run starts. Pure.
#pragma once

#include <chrono>

#include "launcher/flags/elastic_flags.h"

namespace zeroth::launcher {

struct RendezvousState {
  int num_usable = 0;                   // hosts that could run ranks now
  int num_pending = 0;                  // that have not answered yet
  std::chrono::milliseconds waited{0};  // since the round before ended, or the launcher began
  std::chrono::milliseconds since_quorum{
      0};  // since there were as many usable ones as there must be
};

struct RendezvousTimeouts {
  std::chrono::milliseconds last_call;     // for those awaited, once enough are there
  std::chrono::milliseconds join_timeout;  // for enough
};

enum class RendezvousAction { kWait, kStart, kGiveUp };

// As torch's rendezvous has it: at once with the most hosts, or when nobody is awaited; with enough
// of them after the last call. Those beyond the most stay as spares.
RendezvousAction next_action(const NodeRange& range, const RendezvousState& rendezvous_state,
                             const RendezvousTimeouts& timeouts);

}  // namespace zeroth::launcher
