// Builds the chain of blocks that a ModelSpec describes.
#pragma once

#include <cstdint>

#include "model/block.h"
#include "model/spec.h"
#include "model/tensor_parallel.h"

namespace zeroth::model {

// Returns [embedding, layer 0 .. layers-1, head], every parameter fp32 on the meta device. The
// blocks share position tables, so they must run on one thread at a time. With `tp` it builds this
// rank's part of every layer. Throws as require_divisible() does.
Blocks build_blocks(const ModelSpec& spec, const TensorParallelPtr& tp = nullptr);

// Throws one Error that lists every size of the model that cannot be split over `ranks` ranks.
void require_divisible(const ModelSpec& spec, int64_t ranks);

}  // namespace zeroth::model
