// Which ranks share every layer, as model::build_blocks asks for them.
#pragma once

#include "comm/mesh.h"
#include "configs/config.h"
#include "model/tensor_ranks.h"

namespace zeroth::engine {

// This rank among them; null where each layer is on one rank. Keeps a reference to the mesh's
// group. Collective where no one has asked for that yet.
model::TensorRanksPtr tensor_ranks(const comm::Mesh& mesh, const configs::Config& config);

// The first of them without the others, to know shapes and to count memory.
model::TensorRanksPtr rehearsed_tensor_ranks(const configs::Config& config);

}  // namespace zeroth::engine
