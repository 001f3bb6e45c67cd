// Memory that parts of a group share.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "comm/group.h"
#include "comm/rank_table.h"
#include "comm/shared_segment.h"

namespace zeroth::comm {

// A segment of `bytes` for each part of `partition`: this rank's, made by the first of its ranks;
// null where it is alone in it. `group`: of all ranks, on one host, for CPU tensors. `run`: as
// SharedSegment. Collective over `group`. Throws an Error on all ranks where one cannot share.
std::shared_ptr<SharedSegment> make_group_segment(Group& group, const Partition& partition,
                                                  size_t bytes, const std::string& run);

// A table of the ranks of this rank's part, on such a segment; null where it is alone.
std::shared_ptr<RankTable> make_group_table(Group& group, const Partition& partition,
                                            const std::string& run);

}  // namespace zeroth::comm
