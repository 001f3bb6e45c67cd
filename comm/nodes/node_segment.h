// The shared memory of the ranks of one node.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "comm/nodes/shared_segment.h"

namespace c10d {
class Store;
}

namespace zeroth::comm {

struct NodeSegment {
  std::shared_ptr<SharedSegment> segment;  // null if the ranks cannot share memory
  std::string failure_reason;              // identical text on every rank
};

// Opens one segment of `bytes` bytes on all ranks of the group, or on none of them. `run` is the
// same on all ranks; the store's keys that begin with "host/" must be unused. Nothing that a
// stranger writes into the store makes a rank use memory of another user, run or size: it can only
// make ranks fail. Collective. Throws an Error that names a rank that does not join in time.
// `global_ranks` are the ranks in messages; empty: the group's own.
NodeSegment join_node_segment(c10d::Store& store, const std::string& run, int rank, int size,
                              size_t bytes, const std::vector<int>& global_ranks = {});

}  // namespace zeroth::comm
