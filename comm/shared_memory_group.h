// Ranks of one host that exchange tensors through shared memory: no sockets, no threads. Each rank
// copies what the others need into shared slots when a collective is issued, as far as these reach,
// and does the rest in later calls, at the latest in wait(). A rank that waits in one of the groups
// that were split off one another serves all of them.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "base/slow_wait.h"
#include "comm/group.h"
#include "comm/members.h"
#include "comm/progress_engine.h"
#include "comm/rank_table.h"
#include "comm/shared_ring.h"

namespace zeroth::comm {

struct SharedMemoryOptions {
  Members members = {};
  std::chrono::milliseconds timeout{600'000};
  std::chrono::milliseconds log_after = SlowWait::kFirst;  // waits that last longer are logged
  RingSize ring;                                           // the same on all ranks
  std::string run = "";  // as SharedSegment, for what parts of the group will share
  // What else moves where this rank waits; null: the group is the first of its rank, with bells in
  // the segment. Its bells have the ranks' numbers in the run.
  std::shared_ptr<ProgressEngine> progress = nullptr;
  int num_doorbells = 0;  // in the segment of make_shared_memory_group(); 0: one for each rank
};

// Bytes of the segment that the group needs: rank table, bells and slots. `num_doorbells`: how
// many, if not one for each of its ranks.
size_t shared_memory_group_bytes(int size, const RingSize& ring, int num_doorbells = 0);

// On such a segment: for the group of a machine of a run on several, which has a bell for each of
// the run's ranks.
std::shared_ptr<ProgressEngine> make_progress_engine(std::shared_ptr<SharedSegment> segment,
                                                     int size, int rank, int num_doorbells,
                                                     std::shared_ptr<PeerReports> reports);

// CPU tensors only. All ranks pass the same segment; its first bytes are `table`'s.
std::unique_ptr<Group> make_shared_memory_group(std::shared_ptr<SharedSegment> segment,
                                                std::shared_ptr<RankTable> table, int rank,
                                                int size, const SharedMemoryOptions& options);

// The group of this rank's part of `node`, a group of ranks of one machine, where it stands at
// `member`; `options.progress` is set. Collective over `node`.
std::unique_ptr<Group> make_shared_memory_part(Group& node, const Partition& partition,
                                               const GroupMember& member,
                                               const SharedMemoryOptions& options);

}  // namespace zeroth::comm
