// The machines of a run, as its ranks found them. Pure.
#pragma once

#include <string>
#include <vector>

namespace zeroth::comm {

struct Host {
  std::string name;
  std::vector<int> ranks;  // ascending
};

// In the order of their first ranks; each rank is on one.
using Hosts = std::vector<Host>;

// What a rank says of its machine: ranks with the same `id` are on one.
struct HostCard {
  std::string id;
  std::string name;
};

// `cards[r]` is rank r's. Machines of one name get the numbers of their first ranks behind it.
Hosts hosts_of(const std::vector<HostCard>& cards);

const Host& host_of(const Hosts& hosts, int rank);

// "rank 3 on node2"
std::string name_on_host(const Hosts& hosts, int rank);

// "4 (2 ranks each)" or "node1 (ranks 0, 1), node2 (ranks 2, 3)", as long as they are few.
std::string list_of(const Hosts& hosts);

// Where the ranks of a group stand on machines. If each machine has equally many of them, rank r
// of the group is number `local` on machine `host`; else every rank counts as a machine of its own.
struct HostLayout {
  std::vector<std::vector<int>> hosts;  // ranks of the group by machine, equally many each
  int host = 0;
  int local = 0;

  int per_host() const { return static_cast<int>(hosts.front().size()); }
  int num_hosts() const { return static_cast<int>(hosts.size()); }
  // Whether the group numbers its ranks machine by machine.
  bool in_order() const;
};

// `part`: the group's ranks by their numbers in the run; `rank`: this one's there.
HostLayout layout_of(const std::vector<int>& part, const Hosts& hosts, int rank);

}  // namespace zeroth::comm
