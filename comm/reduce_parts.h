// The arithmetic of reductions between CPU tensors of different ranks.
#pragma once

#include <torch/types.h>

#include <vector>

#include "comm/group.h"

namespace zeroth::comm {

// out = the parts reduced in this order, so that the result does not depend on who is fast. Sums of
// 16-bit floats are accumulated in fp32 and rounded once. `out` may be one of the parts. `scratch`
// is memory that the caller keeps from call to call.
void reduce_parts(ReduceOp op, const torch::Tensor& out, const std::vector<torch::Tensor>& parts,
                  torch::Tensor& scratch);

}  // namespace zeroth::comm
