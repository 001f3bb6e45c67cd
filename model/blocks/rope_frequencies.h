// How fast each pair of a head's elements turns from position to position.
#pragma once

#include <torch/types.h>

#include <cstdint>

#include "model/spec.h"

namespace zeroth::model {

// [head_dim / 2] fp32 on the CPU: radians per position, in sequences of `seq` positions of a model
// that was made for `max_positions`. Every kind as transformers 5.17 has it
// (modeling_rope_utils.py).
torch::Tensor rope_frequencies(const RopeSpec& spec, int64_t head_dim, int64_t max_positions,
                               int64_t seq);

// Whether sequences of different lengths turn differently.
bool depends_on_length(const RopeSpec& spec);

}  // namespace zeroth::model
