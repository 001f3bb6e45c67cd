// The ranks of a group as messages name them.
#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

#include "comm/groups/group.h"

namespace zeroth::comm {

struct Members {
  std::string group = "world";
  std::vector<int> ranks = {};  // global ranks of the group; empty: the world
  std::string node = "";        // node of the ranks; empty: the only node, or several

  int global_rank(int rank) const {
    return ranks.empty() ? rank : ranks[static_cast<size_t>(rank)];
  }
  // Returns "rank 0 of 2"; in a part of the world, whose size is not the run's, "rank 0".
  std::string rank_name(int rank, int size) const {
    return ranks.empty() ? fmt::format("rank {} of {}", rank, size)
                         : fmt::format("rank {}", global_rank(rank));
  }
  // Returns " on node2", for example; empty if `node` is.
  std::string on_node() const { return node.empty() ? "" : " on " + node; }
  // Returns "'world'", "'tensor' (ranks 2, 3)" or "'tensor' (ranks 2, 3 on node2)".
  std::string name() const {
    return ranks.empty()
               ? fmt::format("'{}'", group)
               : fmt::format("'{}' (ranks {}{})", group, fmt::join(ranks, ", "), on_node());
  }
};

// Returns the ranks of a world of this size.
inline std::vector<int> all_ranks(int world_size) {
  std::vector<int> ranks(static_cast<size_t>(world_size));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

// Returns the world as the only part of itself.
inline Partition world_partition(int world_size) {
  return {Members().group, {all_ranks(world_size)}};
}

// A GroupMember is the position of a rank in its part of a partition.
struct GroupMember {
  int rank = 0;  // index within the part
  int size = 1;
  Members members;
};

inline GroupMember group_member(const Partition& partition, int rank) {
  const std::vector<int>& part = partition.part_of(rank);
  const auto before = std::find(part.begin(), part.end(), rank) - part.begin();
  GroupMember member{
      static_cast<int>(before), static_cast<int>(part.size()), {partition.name, part, ""}};
  if (partition.parts.size() == 1) member.members.ranks.clear();
  return member;
}

}  // namespace zeroth::comm
