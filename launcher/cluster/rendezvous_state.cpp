#include "launcher/cluster/rendezvous_state.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>

#include "base/text/units.h"

namespace zeroth::launcher {
namespace {

std::string describe_hosts(const std::vector<std::string>& hosts) {
  return fmt::format("host{} {}", hosts.size() > 1 ? "s" : "", fmt::join(hosts, ", "));
}

std::string describe(const ModelParallelSize& size) {
  return fmt::format("{} x {}", pluralize(size.pipeline, "pipeline stage"),
                     pluralize(size.tensor, "tensor-parallel rank"));
}

}  // namespace

RendezvousAction next_action(const NodeRange& range, const RendezvousState& rendezvous_state,
                             std::chrono::milliseconds last_call,
                             std::chrono::milliseconds join_timeout) {
  const auto& [num_usable, has_ranks, num_pending, waited, since_quorum] = rendezvous_state;
  if (num_usable >= range.max && has_ranks) return RendezvousAction::kStart;
  if (num_usable < range.min || !has_ranks)
    return waited < join_timeout ? RendezvousAction::kWait : RendezvousAction::kGiveUp;
  return num_pending > 0 && since_quorum < last_call ? RendezvousAction::kWait
                                                     : RendezvousAction::kStart;
}

int sum_of(const std::vector<int>& numbers) {
  return std::accumulate(numbers.begin(), numbers.end(), 0);
}

std::vector<int> assign_ranks(const std::vector<int>& slots, const ModelParallelSize& size) {
  const auto usable_ranks = [&](const std::vector<int>& ranks) {
    return sum_of(ranks) - sum_of(ranks) % size.num_ranks();
  };
  std::vector<int> assigned = slots;
  for (int& ranks : assigned) ranks -= static_cast<int>(ranks % size.tensor);
  if (usable_ranks(assigned) < usable_ranks(slots)) assigned = slots;
  int64_t left = usable_ranks(assigned);
  for (int& ranks : assigned) {
    ranks = static_cast<int>(std::min<int64_t>(ranks, left));
    left -= ranks;
  }
  return assigned;
}

std::string describe_spares(int64_t num_spares, int64_t num_ranks, const ModelParallelSize& size) {
  return fmt::format("{} of {} wait{} as {}: ranks must be a multiple of {} ({})", num_spares,
                     pluralize(num_ranks, "rank"), num_spares == 1 ? "s" : "",
                     num_spares == 1 ? "a spare" : "spares", size.num_ranks(), describe(size));
}

std::string describe_joined(const std::vector<std::string>& hosts) {
  return fmt::format("{} {} joined", describe_hosts(hosts), hosts.size() > 1 ? "have" : "has");
}

std::string describe_signaled(const std::vector<std::string>& hosts, int signal) {
  return fmt::format("{} {} sent {}", describe_hosts(hosts), hosts.size() > 1 ? "were" : "was",
                     signal_name(signal));
}

QuorumCount count_ranks(const std::vector<int>& slots, const ModelParallelSize& size) {
  return {"rank", sum_of(slots), size.num_ranks(), describe(size)};
}

std::string describe_shortage(const QuorumCount& count, int64_t num_hosts) {
  return fmt::format("{} on {}, but one copy of the model needs {} ({})",
                     pluralize(count.available, count.unit), pluralize(num_hosts, "host"),
                     count.needed, count.reason);
}

std::string describe_waiting(const QuorumCount& count, std::chrono::milliseconds limit,
                             const std::vector<std::string>& silent) {
  return fmt::format(
      "{} of at least {} available: waiting up to {} s for more{}",
      pluralize(count.available, count.unit), count.needed, limit.count() / 1000,
      silent.empty() ? "" : fmt::format("; no answer yet from {}", fmt::join(silent, ", ")));
}

std::string describe_missing_quorum(const QuorumCount& count, const std::vector<std::string>& there,
                                    std::chrono::milliseconds waited, int requeue_code) {
  return fmt::format(
      "{} after {} s, at least {} needed ({}): checkpoints are intact, resubmit the run "
      "(exit code {})",
      there.empty() ? "no host available"
                    : fmt::format("only {} ({}) available", pluralize(count.available, count.unit),
                                  fmt::join(there, ", ")),
      waited.count() / 1000, count.needed, count.reason, requeue_code);
}

}  // namespace zeroth::launcher
