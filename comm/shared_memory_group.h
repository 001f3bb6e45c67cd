// Ranks of one host that exchange tensors through shared memory: no sockets, no threads. Each rank
// copies what the others need into shared slots when a collective is issued, as far as these reach,
// and does the rest in later calls, at the latest in wait(). A rank that waits in one of the groups
// that were split off one another serves all of them.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "comm/group.h"
#include "comm/members.h"
#include "comm/rank_table.h"
#include "comm/shared_ring.h"

namespace zeroth::comm {

struct SharedMemoryOptions {
  Members members = {};
  std::chrono::milliseconds timeout{600'000};
  RingSize ring;         // the same on all ranks
  std::string run = "";  // as SharedSegment, for what parts of the group will share
};

// Bytes of the segment that the group needs: rank table, bells and slots.
size_t shared_memory_group_bytes(int size, const RingSize& ring);

// CPU tensors only. All ranks pass the same segment; its first bytes are `table`'s.
std::unique_ptr<Group> make_shared_memory_group(std::shared_ptr<SharedSegment> segment,
                                                std::shared_ptr<RankTable> table, int rank,
                                                int size, const SharedMemoryOptions& options);

}  // namespace zeroth::comm
