// A Group over any c10d backend (Gloo, NCCL).
#pragma once

#include <functional>
#include <memory>
#include <string_view>

#include "comm/group.h"
#include "comm/members.h"
#include "comm/pair_link.h"
#include "comm/peer_reports.h"
#include "comm/progress_engine.h"
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
  // With a watchdog, of ranks on several machines: what they tell each other; may be null.
  std::shared_ptr<PeerReports> reports = nullptr;
  // What else moves where this rank waits, of a run on several machines; null: waits move nothing.
  std::shared_ptr<ProgressEngine> progress = nullptr;
  // Of a group of two, over which they send_recv(); else null.
  std::shared_ptr<PairLink> link = nullptr;
  // As Group::split: connects the backend's ranks in parts.
  std::function<std::unique_ptr<Group>(const Partition&)> split = {};
};

// A Group over a backend whose ranks can also exchange tensors by pairs.
class C10dGroup : public Group {
 public:
  // out [n] = the other rank's `in` [n], in a group of two that has a link; in both directions or
  // in one, where the other has no elements. They share no memory. As Group::issue().
  virtual CollectiveHandle send_recv(const torch::Tensor& out, const torch::Tensor& in,
                                     std::string_view what) = 0;
};

// Takes shared ownership of the backend.
std::unique_ptr<C10dGroup> make_c10d_group(c10::intrusive_ptr<c10d::Backend> backend,
                                           C10dGroupOptions options);

}  // namespace zeroth::comm
