// Memory that parts of a group share.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "comm/groups/group.h"
#include "comm/groups/rank_table.h"
#include "comm/nodes/shared_segment.h"

namespace zeroth::comm {

// Creates a segment of `bytes` bytes for each part of `partition`, by the part's first rank.
// Returns the one of this rank's part; null if the part has one rank. `group` has all ranks, on one
// node, and accepts CPU tensors. `run` is that of SharedSegment. Collective over `group`. Throws an
// Error on all ranks if one cannot share.
std::shared_ptr<SharedSegment> make_group_segment(Group& group, const Partition& partition,
                                                  size_t bytes, const std::string& run);

// Creates a table of the ranks of this rank's part in such a segment; null if the part has one
// rank.
std::shared_ptr<RankTable> make_group_table(Group& group, const Partition& partition,
                                            const std::string& run);

}  // namespace zeroth::comm
