// Estimate of the memory that a micro-batch needs in a chain, computed from the measured bytes of
// single blocks.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "engine/step/schedule.h"

namespace zeroth::engine {

// Growth is a number of bytes as a function of a micro-batch's tokens.
struct Growth {
  double fixed = 0;
  double per_token = 0;
  double at(int64_t tokens) const { return fixed + per_token * static_cast<double>(tokens); }
};

// BlockValues is what a block adds to the memory in use when it begins. It excludes the block's
// parameters and their gradients, which exist before.
template <typename T>
struct BlockValues {
  T output{};    // the block's output
  T no_grad{};   // peak of a forward without a graph, its output included
  T forward{};   // peak of a forward that keeps its graph
  T kept{};      // remains after that forward: graph and output
  T backward{};  // peak of its backward, above what is in use when that begins
  T freed{};     // decrease from the begin of its backward to the end
};
using BlockBytes = BlockValues<Growth>;

// Returns `function` of each of a block's values, or of each pair of values of two blocks.
template <typename Function, typename... T>
auto for_each_value(Function function, const BlockValues<T>&... of) {
  return BlockValues<decltype(function(of.output...))>{
      function(of.output...), function(of.no_grad...),  function(of.forward...),
      function(of.kept...),   function(of.backward...), function(of.freed...)};
}

// ChainBytes describes a chain.
struct ChainBytes {
  BlockBytes first, middle, last;
  // Of each block between the first and the last; empty: all are like `middle`.
  std::vector<BlockBytes> layers = {};
  // Additional bytes of the last block for the tokens that it processes at once, at most
  // `chunk_tokens`: logits and copies of them. With more tokens the block computes these chunk by
  // chunk, keeps none of them, and computes them again in backward.
  BlockBytes chunked;
  int64_t chunk_tokens = std::numeric_limits<int64_t>::max();
};

// Return the peak bytes of a rank's step of micro-batches of this many tokens, in a chain of
// `num_blocks`, and of an evaluation of one. They exclude the saved inputs of recomputed segments
// (zero::StepEstimate).
int64_t activation_bytes(const ChainBytes& chain, const StepSchedule& schedule, size_t num_blocks,
                         int64_t tokens);
int64_t evaluation_bytes(const ChainBytes& chain, int64_t tokens);

}  // namespace zeroth::engine
