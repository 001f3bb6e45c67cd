// Ranks that share every layer have to agree on how: a block says it for its own rank alone.
#pragma once

#include "comm/device_mesh.h"
#include "model/block.h"

namespace zeroth::engine {

// Throws an Error on every rank unless those that share layers hold each whole parameter together,
// every element of it once (or in as many copies as each says), lay out alike what they gather
// together, and have the same buffers, but for boxes of them. It names two ranks, the parameter,
// and what each says of it. Collective over all ranks; nothing where none share layers.
void verify_sharding_matches(const model::Blocks& blocks, const comm::DeviceMesh& mesh);

}  // namespace zeroth::engine
