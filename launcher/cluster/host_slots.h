// Which hosts and slots of a hostfile are used. Pure.
#pragma once

#include <string>
#include <vector>

#include "launcher/cluster/hostfile.h"
#include "launcher/flags/cli.h"

namespace zeroth::launcher {

// A host that runs ranks: as many as it has slots, which are the numbers of its visible GPUs, or
// on the CPU just numbers.
struct HostSlots {
  std::string host;        // see HostEntry
  std::vector<int> slots;  // at least one, rising

  bool operator==(const HostSlots&) const = default;
};

// Applies --include, --exclude, --num_nodes and --num_gpus; hosts stay in the hostfile's order, and
// those without a slot left are dropped. A filter is NAME[:S[,S...]][@NAME...]: a name without
// slots means all of them, what is named twice counts once. A name of the hostfile may be written
// without its user; an IPv6 address with slots stands in brackets, as [::1]:0. Throws UsageError on
// flags that clash, on an unknown host or slot, and where nothing is left; beyond a host's slots,
// unless --share-gpus allows it.
std::vector<HostSlots> choose_hosts(const std::vector<HostEntry>& hosts,
                                    const LaunchOptions& options);

// Of all hosts, and of those before `host`.
int count_ranks(const std::vector<HostSlots>& hosts);
int first_rank_of(const std::vector<HostSlots>& hosts, int host);

}  // namespace zeroth::launcher
