// Frequencies of the rotary embedding: how fast each pair of a head's elements turns from position
// to position.
#pragma once

#include <torch/types.h>

#include <cstdint>

#include "model/spec.h"

namespace zeroth::model {

// Returns radians per position, [head_dim / 2] fp32 on the CPU, for sequences of `seq` positions of
// a model that was trained for `max_positions`. Every kind follows transformers 5.17
// (modeling_rope_utils.py).
torch::Tensor rope_frequencies(const RopeSpec& spec, int64_t head_dim, int64_t max_positions,
                               int64_t seq);

// Returns whether the frequencies depend on the length of the sequence.
bool depends_on_length(const RopeSpec& spec);

}  // namespace zeroth::model
