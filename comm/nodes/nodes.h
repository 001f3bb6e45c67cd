// The nodes of a run, as its ranks discovered them. Pure.
#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

namespace zeroth::comm {

struct Node {
  std::string name;
  std::vector<int> ranks;  // ascending
};

// Nodes, ordered by their first ranks; each rank is on one.
using Nodes = std::vector<Node>;

// A NodeIdentity is a rank's report about its node: ranks with the same `id` share a node.
struct NodeIdentity {
  std::string id;
  std::string name;
};

// Groups ranks by identity; `identities[r]` is rank r's. Appends the first rank to a node's name if
// several nodes have that name.
Nodes group_by_node(const std::vector<NodeIdentity>& identities);

const Node& node_of(const Nodes& nodes, int rank);
// Returns the index of `rank` among the ranks of its node.
int local_rank(const Node& node, int rank);
int count_ranks(const Nodes& nodes);
// Returns the minimum and the maximum number of ranks of a node.
std::pair<size_t, size_t> min_max_ranks(const Nodes& nodes);

// Returns "rank 3 on node2", for example.
std::string describe_rank(const Nodes& nodes, int rank);

// Returns "4 (2 ranks each)", or "node1 (ranks 0, 1), node2 (ranks 2, 3)" if there are few.
std::string describe_nodes(const Nodes& nodes);

// A NodeLayout places the ranks of a group on nodes. If each node has equally many of them, this
// rank is the one with index `local` on node `node`; else every rank counts as a node.
struct NodeLayout {
  std::vector<std::vector<int>> nodes;  // ranks of the group by node, equally many each
  int node = 0;
  int local = 0;

  int ranks_per_node() const { return static_cast<int>(nodes.front().size()); }
  int num_nodes() const { return static_cast<int>(nodes.size()); }
  // Returns whether the group numbers its ranks node by node.
  bool in_order() const;
};

// Computes the layout. `part`: the group's global ranks; `rank`: this rank's global rank.
NodeLayout node_layout(const std::vector<int>& part, const Nodes& nodes, int rank);

}  // namespace zeroth::comm
