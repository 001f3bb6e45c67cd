// Which ranks share every layer, as model::build_blocks asks for them.
#pragma once

#include "comm/device_mesh.h"
#include "configs/config.h"
#include "model/tensor_parallel.h"

namespace zeroth::engine {

// This rank among them; null where each layer is on one rank. Keeps a reference to the mesh's
// group. Collective where no one has asked for that yet.
model::TensorParallelPtr tensor_parallel_group(const comm::DeviceMesh& mesh,
                                               const configs::Config& config);

// The first of them without the others, to know shapes and to count memory.
model::TensorParallelPtr fake_tensor_parallel(const configs::Config& config);

}  // namespace zeroth::engine
