// The hosts and slots of a hostfile that a run uses. Pure.
#pragma once

#include <string>
#include <vector>

#include "launcher/backends/hostfile.h"
#include "launcher/flags/cli.h"

namespace zeroth::launcher {

// HostSlots is a host with its slots, one per rank: indices of its visible GPUs, or plain numbers
// on the CPU.
struct HostSlots {
  std::string host;        // see HostEntry
  std::vector<int> slots;  // at least one, ascending

  bool operator==(const HostSlots&) const = default;
};

// Applies --include, --exclude, --num_nodes and --num_gpus. Hosts stay in the hostfile's order;
// those without a slot left are dropped. A filter is NAME[:S[,S...]][@NAME...]: a name without
// slots means all of them, and duplicates count once. A name of the hostfile may be written without
// its user; an IPv6 address with slots needs brackets, as [::1]:0. Throws UsageError on conflicting
// flags, on an unknown host or slot, if no host is left, and if --num_gpus exceeds a host's slots,
// unless --share-gpus allows it.
std::vector<HostSlots> choose_hosts(const std::vector<HostEntry>& hosts,
                                    const LaunchOptions& options);

// Counts the ranks of all hosts, or of those before `host`.
int count_ranks(const std::vector<HostSlots>& hosts);
int first_rank_of(const std::vector<HostSlots>& hosts, int host);

}  // namespace zeroth::launcher
