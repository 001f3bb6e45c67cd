// The ranks of a group, as messages call them.
#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string>
#include <vector>

#include "comm/group.h"

namespace zeroth::comm {

struct Members {
  std::string group = "world";
  std::vector<int> ranks = {};  // their numbers in the world; empty: they are the world
  std::string node = "";        // whose ranks they are; empty: of the only one, or of several

  int global_rank(int rank) const {
    return ranks.empty() ? rank : ranks[static_cast<size_t>(rank)];
  }
  // "rank 0 of 2"; in a part of the world, whose size says nothing of the run, "rank 0".
  std::string rank_name(int rank, int size) const {
    return ranks.empty() ? fmt::format("rank {} of {}", rank, size)
                         : fmt::format("rank {}", global_rank(rank));
  }
  // " on node2"
  std::string on_node() const { return node.empty() ? "" : " on " + node; }
  // "'world'", "'tensor' (ranks 2, 3)", "'tensor' (ranks 2, 3 on node2)"
  std::string name() const {
    return ranks.empty()
               ? fmt::format("'{}'", group)
               : fmt::format("'{}' (ranks {}{})", group, fmt::join(ranks, ", "), on_node());
  }
};

// Where a rank is in its part.
struct GroupMember {
  int rank = 0;  // among its ranks
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
