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
#include "comm/host_progress.h"
#include "comm/members.h"
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
  std::shared_ptr<HostProgress> progress = nullptr;
  int bells = 0;  // in the segment of make_shared_memory_group(); 0: one for each rank
};

// Bytes of the segment that the group needs: rank table, bells and slots. `bells`: how many, if not
// one for each of its ranks.
size_t shared_memory_group_bytes(int size, const RingSize& ring, int bells = 0);

// On such a segment: for the group of a machine of a run on several, which has a bell for each of
// the run's ranks.
std::shared_ptr<HostProgress> make_host_progress(std::shared_ptr<SharedSegment> segment, int size,
                                                 int rank, int bells,
                                                 std::shared_ptr<HostReports> reports);

// CPU tensors only. All ranks pass the same segment; its first bytes are `table`'s.
std::unique_ptr<Group> make_shared_memory_group(std::shared_ptr<SharedSegment> segment,
                                                std::shared_ptr<RankTable> table, int rank,
                                                int size, const SharedMemoryOptions& options);

// The group of this rank's part of `host`, a group of ranks of one machine, where it stands at
// `place`; `options.progress` is set. Collective over `host`.
std::unique_ptr<Group> make_shared_memory_part(Group& host, const Partition& partition,
                                               const Place& place,
                                               const SharedMemoryOptions& options);

}  // namespace zeroth::comm
