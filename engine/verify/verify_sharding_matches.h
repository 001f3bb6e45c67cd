// Check that ranks that share every layer agree on the sharding, which a block states for its own
// rank alone.
#pragma once

#include "comm/device_mesh.h"
#include "model/block.h"

namespace zeroth::engine {

// Throws an Error on every rank unless the ranks of each tensor-parallel group hold each global
// parameter together, every element once (or with the number of replicas that each rank states),
// use the same layout for what they gather together, and have the same buffers, except for slices
// of them. The Error names two ranks, the parameter, and each rank's statement. Collective over all
// ranks; does nothing if no ranks share layers.
void verify_sharding_matches(const model::Blocks& blocks, const comm::DeviceMesh& mesh);

}  // namespace zeroth::engine
