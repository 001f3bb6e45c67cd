// The rule for starting an attempt of an elastic run, and messages about its nodes. Pure.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "launcher/flags/host_flags.h"
#include "launcher/run/program_arguments.h"

namespace zeroth::launcher {

struct RendezvousState {
  int num_usable = 0;                   // nodes that could run ranks now
  bool has_ranks = true;                // the first of them have those of one copy of the model
  int num_pending = 0;                  // nodes that have not answered yet
  std::chrono::milliseconds waited{0};  // since the previous attempt ended, or the launcher started
  std::chrono::milliseconds since_quorum{0};  // since there was a quorum
};

enum class RendezvousAction { kWait, kStart, kGiveUp };

int sum_of(const std::vector<int>& numbers);

// Returns how many ranks each node starts, given the nodes' slots: together the largest multiple of
// the ranks that one copy of the model needs, which is 0 if they are too few. The first nodes get
// theirs first. A tensor-parallel group does not cross nodes unless fewer ranks could start
// otherwise.
std::vector<int> assign_ranks(const std::vector<int>& slots, const ModelParallelSize& size);

// Returns "1 of 3 ranks waits as a spare: ranks must be a multiple of 2 (2 pipeline stages x 1
// tensor-parallel rank)".
std::string describe_spares(int64_t num_spares, int64_t num_ranks, const ModelParallelSize& size);

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

// What a run needs to start, and what it has.
struct QuorumCount {
  std::string unit = "host";  // or "rank"
  int64_t available = 0, needed = 0;
  std::string reason = "--elastic";  // why so many are needed
};

// Returns the ranks that one copy of the model needs, and those of nodes with these slots.
QuorumCount count_ranks(const std::vector<int>& slots, const ModelParallelSize& size);

// Returns "4 ranks on 2 hosts, but one copy of the model needs 8 (...)".
std::string describe_shortage(const QuorumCount& count, int64_t num_hosts);

// Returns "1 host of at least 2 available: waiting up to 600 s for more; no answer yet from b".
std::string describe_waiting(const QuorumCount& count, std::chrono::milliseconds limit,
                             const std::vector<std::string>& silent);

// Explains why a run ends without a quorum; `there` are the nodes that are present.
std::string describe_missing_quorum(const QuorumCount& count, const std::vector<std::string>& there,
                                    std::chrono::milliseconds waited, int requeue_code);

}  // namespace zeroth::launcher
