// The memory that a micro-batch takes on its way through a chain, foretold from what single blocks
// took.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "engine/schedule.h"

namespace zeroth::engine {

// Bytes as a function of a micro-batch's tokens.
struct Growth {
  double fixed = 0;
  double per_token = 0;
  double at(int64_t tokens) const { return fixed + per_token * static_cast<double>(tokens); }
};

// What a block adds to what there is when it begins. Its parameters and their gradients, which are
// there before, are not in it.
struct BlockBytes {
  Growth output;    // what it hands on
  Growth no_grad;   // most in a forward that keeps nothing, its output included
  Growth forward;   // most in one that keeps its graph
  Growth kept;      // what stays of that forward: graph and output
  Growth backward;  // most in its backward, over what there is when that begins
  Growth freed;     // what there is less when its backward is over
};

// A chain whose blocks between the first and the last are alike.
struct ChainBytes {
  BlockBytes first, middle, last;
  // What the last block takes beside that for tokens that it works on at once, at most so many:
  // logits and copies of them. With more tokens that is made chunk by chunk, not kept, and made
  // again in backward.
  BlockBytes chunked;
  int64_t chunk_tokens = std::numeric_limits<int64_t>::max();
};

// The most that forward and backward of one micro-batch take at a time, or its evaluation; the kept
// inputs of recomputed segments (zero::StepEstimate) are not counted.
int64_t activation_bytes(const ChainBytes& chain, const std::vector<Segment>& segments,
                         int64_t tokens);
int64_t evaluation_bytes(const ChainBytes& chain, int64_t tokens);

}  // namespace zeroth::engine
