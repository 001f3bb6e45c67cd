// How fast tensors move within a machine of a run and between its machines.
#pragma once

#include <cstdint>
#include <string>

#include "comm/device_mesh.h"

namespace zeroth::comm {

// In bytes a second; 0: no machine has several ranks.
struct LinkSpeed {
  double intra_node = 0;  // what a rank gets from the others of its machine, all of them at once
  double inter_node = 0;  // what a machine sends to the others, all of its ranks together
};

// "within a host 4.1 GB/s to each rank, across 118 MB/s from each host"
std::string to_string(const LinkSpeed& speed);

// How large the next probe is after one of `bytes` took so long; 0: that one tells.
int64_t next_probe_bytes(int64_t bytes, double seconds);

// By all-gathers that grow until the next one might take more than 0.08 s: under 0.5 s together
// where 64 KiB take less than that. Of several machines. Collective. Throws as these do.
LinkSpeed measure_links(const DeviceMesh& mesh);

}  // namespace zeroth::comm
