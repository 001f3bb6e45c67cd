// From a ModelSpec to the chain of blocks.
#pragma once

#include <cstdint>

#include "model/block.h"
#include "model/spec.h"
#include "model/tensor_parallel.h"

namespace zeroth::model {

// [embedding, layer 0 .. layers-1, head], every parameter fp32 on the meta device. The chain shares
// position tables, so its blocks run on one thread at a time. With `ranks` the part of one of those
// that share every layer. Throws as require_divisible().
Blocks build_blocks(const ModelSpec& spec, const TensorParallelPtr& tp = nullptr);

// Throws one Error that names every size of the model which so many ranks cannot share.
void require_divisible(const ModelSpec& spec, int64_t ranks);

}  // namespace zeroth::model
