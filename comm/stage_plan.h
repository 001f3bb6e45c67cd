// Collectives over ranks of several machines as steps among the ranks of each machine and between
// machines, so that no byte goes to another machine twice. What goes where; knows nothing of
// waiting.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "comm/c10d_group.h"
#include "comm/group.h"
#include "comm/nodes.h"
#include "comm/stage_queue.h"

namespace zeroth::comm {

// The groups of a rank. `intra_first` and `intra_last` are both of the group's ranks on its
// machine; `inter_node` is of the ranks with its number on all machines. Where it is alone they are
// solo groups.
struct StageGroups {
  std::shared_ptr<Group> intra_first, intra_last;
  std::shared_ptr<C10dGroup> inter_node;
  NodeLayout layout;
};

struct StagePlan {
  std::vector<StageStep> steps;
  int64_t bytes_sent = 0;  // by this rank to other machines
};

// Of CPU tensors, at least one element. Keeps tensors and legs alive.
//
// A sum is ordered by rank within each machine and then by machine, in the order of their first
// ranks; sums of 16-bit floats are rounded once for each of these two.
StagePlan plan_stages(const Collective& collective,
                      const std::shared_ptr<const StageGroups>& stages);

}  // namespace zeroth::comm
