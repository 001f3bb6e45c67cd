// The machines of a run, as its ranks found them. Pure.
#pragma once

#include <string>
#include <vector>

namespace zeroth::comm {

struct Node {
  std::string name;
  std::vector<int> ranks;  // ascending
};

// In the order of their first ranks; each rank is on one.
using Nodes = std::vector<Node>;

// What a rank says of its machine: ranks with the same `id` are on one.
struct NodeIdentity {
  std::string id;
  std::string name;
};

// `cards[r]` is rank r's. Machines of one name get the numbers of their first ranks behind it.
Nodes group_by_node(const std::vector<NodeIdentity>& identities);

const Node& node_of(const Nodes& nodes, int rank);

// "rank 3 on node2"
std::string describe_rank(const Nodes& nodes, int rank);

// "4 (2 ranks each)" or "node1 (ranks 0, 1), node2 (ranks 2, 3)", as long as they are few.
std::string describe_nodes(const Nodes& nodes);

// Where the ranks of a group stand on machines. If each machine has equally many of them, rank r
// of the group is number `local` on machine `node`; else every rank counts as a machine of its own.
struct NodeLayout {
  std::vector<std::vector<int>> nodes;  // ranks of the group by machine, equally many each
  int node = 0;
  int local = 0;

  int ranks_per_node() const { return static_cast<int>(nodes.front().size()); }
  int num_nodes() const { return static_cast<int>(nodes.size()); }
  // Whether the group numbers its ranks machine by machine.
  bool in_order() const;
};

// `part`: the group's ranks by their numbers in the run; `rank`: this one's there.
NodeLayout node_layout(const std::vector<int>& part, const Nodes& nodes, int rank);

}  // namespace zeroth::comm
