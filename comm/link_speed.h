// The bandwidth within a node and between the nodes of a run.
#pragma once

#include <cstdint>
#include <string>

#include "comm/device_mesh.h"

namespace zeroth::comm {

// Bandwidths in bytes per second; 0: no node has several ranks.
struct LinkSpeed {
  double intra_node = 0;  // received by a rank from its node's other ranks, all of them at once
  double inter_node = 0;  // sent by a node to the others, all of its ranks together
};

// Returns "intra-node 4.1 GB/s per rank, inter-node 118 MB/s per host", for example.
std::string to_string(const LinkSpeed& speed);

// Returns the bytes of the next probe after one of `bytes` took `seconds`; 0: that probe suffices.
int64_t next_probe_bytes(int64_t bytes, double seconds);

// Measures all-gathers that grow until the next one might take more than 0.08 s: under 0.5 s in all
// if 64 KiB take less than that. Requires several nodes. Collective. Throws an Error like these
// collectives.
LinkSpeed measure_links(const DeviceMesh& mesh);

}  // namespace zeroth::comm
