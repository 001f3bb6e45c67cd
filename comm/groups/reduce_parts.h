// The arithmetic of reductions between CPU tensors of different ranks.
#pragma once

#include <vector>

#include "comm/groups/group.h"
#include "device/tensor.h"

namespace zeroth::comm {

// Reduces the parts into `out` in this order, so that the result does not depend on timing.
// Accumulates sums of 16-bit floats in fp32 and rounds them once. `out` may be one of the parts.
// `scratch` is memory that the caller keeps from call to call.
void reduce_parts(ReduceOp op, const torch::Tensor& out, const std::vector<torch::Tensor>& parts,
                  torch::Tensor& scratch);

}  // namespace zeroth::comm
