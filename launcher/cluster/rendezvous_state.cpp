#include "launcher/cluster/rendezvous_state.h"

#include <fmt/ranges.h>

#include "base/text/units.h"

namespace zeroth::launcher {
namespace {

std::string describe_hosts(const std::vector<std::string>& hosts) {
  return fmt::format("host{} {}", hosts.size() > 1 ? "s" : "", fmt::join(hosts, ", "));
}

}  // namespace

RendezvousAction next_action(const NodeRange& range, const RendezvousState& rendezvous_state,
                             std::chrono::milliseconds last_call,
                             std::chrono::milliseconds join_timeout) {
  if (rendezvous_state.num_usable >= range.max) return RendezvousAction::kStart;
  if (!has_quorum(range, rendezvous_state.num_usable))
    return rendezvous_state.waited < join_timeout ? RendezvousAction::kWait
                                                  : RendezvousAction::kGiveUp;
  const bool wait = rendezvous_state.num_pending > 0 && rendezvous_state.since_quorum < last_call;
  return wait ? RendezvousAction::kWait : RendezvousAction::kStart;
}

std::string describe_joined(const std::vector<std::string>& hosts) {
  return fmt::format("{} {} joined", describe_hosts(hosts), hosts.size() > 1 ? "have" : "has");
}

std::string describe_signaled(const std::vector<std::string>& hosts, int signal) {
  return fmt::format("{} {} sent {}", describe_hosts(hosts), hosts.size() > 1 ? "were" : "was",
                     signal_name(signal));
}

std::string describe_waiting(size_t num_there, int min_nodes, std::chrono::milliseconds limit,
                             const std::vector<std::string>& silent) {
  return fmt::format(
      "{} of at least {} available: waiting up to {} s for more{}",
      pluralize(static_cast<int64_t>(num_there), "host"), min_nodes, limit.count() / 1000,
      silent.empty() ? "" : fmt::format("; no answer yet from {}", fmt::join(silent, ", ")));
}

std::string describe_missing_quorum(const std::vector<std::string>& there, int min_nodes,
                                    std::chrono::milliseconds waited, int requeue_code) {
  return fmt::format(
      "{} after {} s, at least {} needed (--elastic): checkpoints are intact, resubmit the run "
      "(exit code {})",
      there.empty() ? "no host available"
                    : fmt::format("only {} ({}) available", pluralize(std::ssize(there), "host"),
                                  fmt::join(there, ", ")),
      waited.count() / 1000, min_nodes, requeue_code);
}

}  // namespace zeroth::launcher
