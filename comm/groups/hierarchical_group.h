// Groups over several nodes: shared memory within a node, TCP between nodes. CPU tensors.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "comm/groups/group.h"
#include "comm/groups/shared_ring.h"
#include "comm/nodes/nodes.h"
#include "comm/nodes/shared_segment.h"

namespace c10d {
class Store;
}

namespace zeroth::comm {

struct HierarchicalOptions {
  Nodes nodes;  // nodes of all ranks; ranks of one node share memory
  std::chrono::milliseconds timeout{600'000};
  RingSize ring;         // identical on all ranks of a node
  std::string run = "";  // see SharedSegment
  std::string address;   // see GlooOptions
  std::string interface;
  std::string secret = "";  // the run's secret, see PairOptions
};

// Returns the bytes of the segment that a node with `local_size` of `world_size` ranks shares.
size_t hierarchical_segment_bytes(int local_size, int world_size, const RingSize& ring);

// Makes the group of all ranks, on two nodes or more. `segment` is that of this rank's node, or
// private memory if the node has one rank. `store` is the run's store: as long as the group lives,
// it is used when a part of the group connects or a collective times out. Collective. Throws an
// Error that names rank and address if the ranks do not connect in time.
//
// If the nodes have unequal numbers of a group's ranks, these exchange as if each rank were a node.
// stage_plan.h documents the order of sums.
std::unique_ptr<Group> make_hierarchical_group(const c10::intrusive_ptr<c10d::Store>& store,
                                               std::shared_ptr<SharedSegment> segment, int rank,
                                               const HierarchicalOptions& options);

}  // namespace zeroth::comm
