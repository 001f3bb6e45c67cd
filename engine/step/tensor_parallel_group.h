// Tensor-parallel group of a mesh, for model::build_blocks.
#pragma once

#include "comm/device_mesh.h"
#include "configs/config.h"
#include "model/tensor_parallel.h"

namespace zeroth::engine {

// Returns this rank in its tensor-parallel group; null if each layer is on one rank. Keeps a
// reference to the mesh's group. Collective if that group does not exist yet.
model::TensorParallelPtr tensor_parallel_group(const comm::DeviceMesh& mesh,
                                               const configs::Config& config);

// Returns the first rank of the group without the others, to compute shapes and memory.
model::TensorParallelPtr fake_tensor_parallel(const configs::Config& config);

}  // namespace zeroth::engine
