// The arithmetic that training a model requires.
#pragma once

#include <cstdint>
#include <vector>

#include "model/spec.h"

namespace zeroth::model {

// Returns floating-point operations of forward and backward per token of a sequence of `seq`
// tokens: 6 for every weight of a product (2 forward, 4 backward), the head's included and the
// embedding's not, and 12 for every channel of every earlier token that attention sees. Recomputed
// work and anything that is not a product are not counted.
double flops_per_token(const ModelSpec& spec, int64_t seq);

// Returns operations of forward alone, for each block of build_blocks() in its order; they sum up
// to a third of flops_per_token().
std::vector<double> block_flops_per_token(const ModelSpec& spec, int64_t seq);

}  // namespace zeroth::model
