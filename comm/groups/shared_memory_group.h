// Groups of the ranks of one node, which exchange tensors through shared memory: no sockets, no
// threads. Each rank copies the data of the others into shared slots when a collective is issued,
// as far as the slots suffice, and does the remainder in later calls, at the latest in wait(). A
// rank that waits in one of the groups split from one another serves all of them.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "base/machine/timer.h"
#include "comm/groups/group.h"
#include "comm/groups/members.h"
#include "comm/groups/progress_engine.h"
#include "comm/groups/rank_table.h"
#include "comm/groups/shared_ring.h"

namespace zeroth::comm {

struct SharedMemoryOptions {
  Members members = {};
  std::chrono::milliseconds timeout{600'000};
  std::chrono::milliseconds log_after = SlowWait::kFirst;  // waits that last longer are logged
  RingSize ring;                                           // identical on all ranks
  std::string run = "";  // see SharedSegment, for memory that parts of the group will share
  // Drives this rank's other transfers while it waits; null: the group is the first of its rank,
  // with doorbells in the segment. Doorbells are indexed by global rank.
  std::shared_ptr<ProgressEngine> progress = nullptr;
  int num_doorbells = 0;  // in the segment of make_shared_memory_group(); 0: one for each rank
};

// Returns the bytes of the segment that the group needs: rank table, doorbells and slots.
// `num_doorbells`: 0 for one per rank of the group.
size_t shared_memory_group_bytes(int size, const RingSize& ring, int num_doorbells = 0);

// Makes a group for CPU tensors only. All ranks pass the same segment; `table` is at its beginning.
std::unique_ptr<Group> make_shared_memory_group(std::shared_ptr<SharedSegment> segment,
                                                std::shared_ptr<RankTable> table, int rank,
                                                int size, const SharedMemoryOptions& options);

// Makes the group of this rank's part of `node`, a group of the ranks of one node, at position
// `member`; `options.progress` must be set. Collective over `node`.
std::unique_ptr<Group> make_shared_memory_part(Group& node, const Partition& partition,
                                               const GroupMember& member,
                                               const SharedMemoryOptions& options);

}  // namespace zeroth::comm
