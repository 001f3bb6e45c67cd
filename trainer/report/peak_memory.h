// The most memory that a run has held.
#pragma once

#include "comm/mesh.h"

namespace zeroth::trainer {

struct PeakMemory {
  double rss_mib = 0;  // resident set: mapped files and shared memory included
  double gpu_mib = 0;  // tensors on the GPU; 0 without one
};

// Of this process since its start.
PeakMemory own_peak_memory(torch::Device device);

// Of the largest rank. Collective over the mesh.
PeakMemory largest_peak_memory(comm::Mesh& mesh);

}  // namespace zeroth::trainer
