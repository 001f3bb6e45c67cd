// A Group over any c10d backend (Gloo, NCCL).
#pragma once

#include <functional>
#include <memory>
#include <string_view>

#include "comm/groups/group.h"
#include "comm/groups/members.h"

namespace c10d {
class Backend;
}

namespace zeroth::comm {

class PairLink;
class PeerReports;
class ProgressEngine;
class RankTable;
class Watchdog;

struct C10dGroupOptions {
  Members members = {};
  // Source of the peers' state for error messages; may be null.
  std::shared_ptr<RankTable> table = nullptr;
  // Set for a backend whose collectives the device waits for and not the CPU (NCCL). Null: the CPU
  // waits, at most as long as the backend's own time limit.
  std::shared_ptr<Watchdog> watchdog = nullptr;
  // With a watchdog and ranks on several nodes: the ranks' status reports; may be null.
  std::shared_ptr<PeerReports> reports = nullptr;
  // In a run on several nodes: drives this rank's other transfers while it waits; null: none.
  std::shared_ptr<ProgressEngine> progress = nullptr;
  // Connection for send_recv() in a group of two; else null.
  std::shared_ptr<PairLink> link = nullptr;
  // Implements Group::split: connects the backend's ranks in parts.
  std::function<std::unique_ptr<Group>(const Partition&)> split = {};
};

// A Group over a backend whose ranks can also exchange tensors in pairs.
class C10dGroup : public Group {
 public:
  // Sets out [n] to the other rank's `in` [n], in a group of two that has a link. Moves data in
  // both directions, or in one if the other has no elements. `out` and `in` share no memory. Errors
  // and lifetimes are those of Group::issue().
  virtual CollectiveHandle send_recv(const torch::Tensor& out, const torch::Tensor& in,
                                     std::string_view what) = 0;
};

// Creates the group, which takes shared ownership of the backend.
std::unique_ptr<C10dGroup> make_c10d_group(c10::intrusive_ptr<c10d::Backend> backend,
                                           C10dGroupOptions options);

}  // namespace zeroth::comm
