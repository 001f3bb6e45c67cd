// A Group over any c10d backend (Gloo, NCCL).
#pragma once

#include <functional>
#include <memory>

#include "comm/group.h"
#include "comm/host_progress.h"
#include "comm/members.h"
#include "comm/rank_table.h"
#include "comm/watchdog.h"

namespace c10d {
class Backend;
}

namespace zeroth::comm {

struct C10dGroupOptions {
  Members members = {};
  // Where errors look for what the peers do; may be null.
  std::shared_ptr<RankTable> table = nullptr;
  // For a backend whose collectives a device waits for and not the host (NCCL). Null: the host
  // waits, at most as long as the backend's own time limit.
  std::shared_ptr<Watchdog> watchdog = nullptr;
  // What else moves where this rank waits, of a run on several machines; null: waits move nothing.
  std::shared_ptr<HostProgress> progress = nullptr;
  // As Group::split: connects the backend's ranks in parts.
  std::function<std::unique_ptr<Group>(const Partition&)> split = {};
};

// Takes shared ownership of the backend.
std::unique_ptr<Group> make_c10d_group(c10::intrusive_ptr<c10d::Backend> backend,
                                       C10dGroupOptions options);

}  // namespace zeroth::comm
