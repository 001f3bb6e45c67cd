// Ranks find out which of them are on one machine, and share memory there.
#pragma once

#include <torch/types.h>

#include <memory>
#include <optional>
#include <string>

#include "comm/nodes.h"
#include "comm/shared_ring.h"
#include "comm/shared_segment.h"

namespace c10d {
class Store;
}

namespace zeroth::comm {

// This machine, for a rank of it: its kernel's boot and the namespace of its processes, in which a
// memory file can be found; or `host_id` where that is given. Named as the machine is.
NodeIdentity local_node_identity(const std::optional<std::string>& host_id);

// What the ranks say of their machines. The store's keys that begin with "hosts/" are unused.
// Collective. Throws an Error that names a rank that does not come in time.
Nodes discover_nodes(c10d::Store& store, int rank, int size, const NodeIdentity& identity);

struct NodeMemory {
  Nodes nodes;  // a machine whose ranks cannot share memory counts as one for each
  std::shared_ptr<SharedSegment> segment;  // of this rank's, as make_hierarchical_group() wants it
  RingSize ring;
  std::string failure_reason;  // empty: every machine shares memory; the same on all ranks
};

// `ring_size`: for so many ranks of a machine. Collective. Throws an Error as discover_nodes().
NodeMemory share_node_memory(const c10::intrusive_ptr<c10d::Store>& store, const std::string& run,
                             int rank, const Nodes& all_nodes, RingSize (*ring_size)(int ranks));

// Where no machine shares memory: `failure_reason` says why.
NodeMemory share_no_memory(const Nodes& all_nodes, const std::string& failure_reason);

}  // namespace zeroth::comm
