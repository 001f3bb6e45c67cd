// Node discovery: ranks find which of them are on one node, and share memory there.
#pragma once

#include <c10/util/intrusive_ptr.h>

#include <memory>
#include <optional>
#include <string>

#include "comm/groups/shared_ring.h"
#include "comm/nodes/nodes.h"
#include "comm/nodes/shared_segment.h"

namespace c10d {
class Store;
}

namespace zeroth::comm {

// Returns the identity of this node for a rank of it: the kernel's boot id and the PID namespace,
// in which a memory file can be found; or `host_id` if that is set. Its name is the node's name.
NodeIdentity local_node_identity(const std::optional<std::string>& host_id);

// Exchanges the ranks' node identities through `store`, whose keys that begin with "hosts/" must be
// unused. Collective. Throws an Error that names a rank that does not join in time.
Nodes discover_nodes(c10d::Store& store, int rank, int size, const NodeIdentity& identity);

struct NodeMemory {
  Nodes nodes;  // a node whose ranks cannot share memory counts as one per rank
  std::shared_ptr<SharedSegment> segment;  // this rank's, for make_hierarchical_group()
  RingSize ring;
  std::string failure_reason;  // empty: every node shares memory; the same on all ranks
};

// Creates the shared memory of each node. `ring_size` returns the ring's size for that many ranks
// of a node. Collective. Throws an Error like discover_nodes().
NodeMemory share_node_memory(const c10::intrusive_ptr<c10d::Store>& store, const std::string& run,
                             int rank, const Nodes& all_nodes, RingSize (*ring_size)(int ranks));

// Returns the result for nodes that share no memory; `failure_reason` says why.
NodeMemory share_no_memory(const Nodes& all_nodes, const std::string& failure_reason);

}  // namespace zeroth::comm
