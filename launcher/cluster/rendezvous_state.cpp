#include "launcher/cluster/rendezvous_state.h"

namespace zeroth::launcher {

RendezvousAction next_action(const NodeRange& range, const RendezvousState& rendezvous_state,
                             const RendezvousTimeouts& timeouts) {
  if (rendezvous_state.num_usable >= range.max) return RendezvousAction::kStart;
  if (rendezvous_state.num_usable < range.min)
    return rendezvous_state.waited < timeouts.join_timeout ? RendezvousAction::kWait
                                                           : RendezvousAction::kGiveUp;
  const bool wait =
      rendezvous_state.num_pending > 0 && rendezvous_state.since_quorum < timeouts.last_call;
  return wait ? RendezvousAction::kWait : RendezvousAction::kStart;
}

}  // namespace zeroth::launcher
