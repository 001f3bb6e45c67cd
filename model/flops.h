// The arithmetic that training a model takes.
#pragma once

#include <cstdint>
#include <vector>

#include "model/spec.h"

namespace zeroth::model {

// Floating-point operations of forward and backward per token of a sequence of `seq` tokens: 6 for
// every weight of a product (2 forward, 4 backward), the head's included and the embedding's not,
// and 12 for every channel of every earlier token that attention sees. Recomputed work and what is
// not a product are not counted.
double flops_per_token(const ModelSpec& spec, int64_t seq);

// Of forward alone, for each block of build_blocks in its order; a third of flops_per_token in sum.
std::vector<double> block_flops_per_token(const ModelSpec& spec, int64_t seq);

}  // namespace zeroth::model
