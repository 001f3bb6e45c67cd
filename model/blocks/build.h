// From a ModelSpec to the chain of blocks.
#pragma once

#include "model/block.h"
#include "model/spec.h"

namespace zeroth::model {

// [embedding, layer 0 .. layers-1, head], every parameter fp32 on the meta device. The chain shares
// position tables, so its blocks run on one thread at a time.
Blocks build_blocks(const ModelSpec& spec);

}  // namespace zeroth::model
