// Ranks of several machines: shared memory among those of each, TCP between machines. CPU tensors.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "comm/group.h"
#include "comm/nodes.h"
#include "comm/shared_ring.h"
#include "comm/shared_segment.h"

namespace c10d {
class Store;
}

namespace zeroth::comm {

struct HierarchicalOptions {
  Nodes nodes;  // of all ranks: who is on one of them shares memory
  std::chrono::milliseconds timeout{600'000};
  RingSize ring;         // the same on all ranks of a machine
  std::string run = "";  // as SharedSegment
  std::string address;   // as GlooOptions
  std::string interface;
  std::string secret = "";  // of the run, as PairOptions
};

// Bytes of the segment that the ranks of a machine have to share, `local_size` of `world_size`.
size_t hierarchical_segment_bytes(int local_size, int world_size, const RingSize& ring);

// The group of all ranks, two machines at least. `segment`: of this rank's machine; where it is
// alone, memory of its own. `store`: of the run; as long as the group lives it is used where a part
// of it connects or a collective does not end. Collective. Throws an Error that names rank and
// address when the ranks do not connect in time.
//
// Machines with unequally many ranks of a group exchange as if each rank were a machine of its own.
// stage_plan.h says in which order sums are taken.
std::unique_ptr<Group> make_hierarchical_group(const c10::intrusive_ptr<c10d::Store>& store,
                                               std::shared_ptr<SharedSegment> segment, int rank,
                                               const HierarchicalOptions& options);

}  // namespace zeroth::comm
