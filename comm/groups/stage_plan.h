// Collectives over several nodes as steps among the ranks of each node and between nodes, so that
// no byte goes to another node twice. Decides which data goes where; knows nothing of waiting.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "comm/groups/c10d_group.h"
#include "comm/groups/group.h"
#include "comm/nodes/nodes.h"

namespace zeroth::comm {

// The stages, each with a group and an order of its own. Two stages are within a node, because the
// start of a last step depends on other nodes, and the first steps of the next collectives do not.
enum class HierarchicalStage { kIntraFirst, kInterNode, kIntraLast };

struct StageStep {
  HierarchicalStage stage;
  int after = -1;  // index of the earlier step that must have ended before; -1: none
  std::function<CollectiveHandle()> begin;
  std::function<void()> end = {};  // local work when the step has ended; may be empty
};

// The groups of a rank. `intra_first` and `intra_last` both consist of the group's ranks on its
// node; `inter_node` consists of the ranks with its local index on all nodes. A group of one rank
// is a solo group.
struct StageGroups {
  std::shared_ptr<Group> intra_first, intra_last;
  std::shared_ptr<C10dGroup> inter_node;
  NodeLayout layout;
};

struct StagePlan {
  std::vector<StageStep> steps;
  int64_t bytes_sent = 0;  // by this rank to other nodes
};

// Plans the steps of a collective of CPU tensors with at least one element. The plan keeps the
// tensors and `stages` alive.
//
// A sum is ordered by rank within each node and then by node, in the order of their first ranks;
// sums of 16-bit floats are rounded once in each of these two stages.
StagePlan plan_stages(const Collective& collective,
                      const std::shared_ptr<const StageGroups>& stages);

}  // namespace zeroth::comm
