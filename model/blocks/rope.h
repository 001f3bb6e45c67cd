// Rotary position embedding.
#pragma once

#include <cstdint>

#include "device/tensor.h"
#include "model/blocks/micro_batch_cache.h"
#include "model/spec.h"

namespace zeroth::model {

// Returns radians per position, [head_dim / 2] fp32 on the CPU, for sequences of `seq` positions of
// a model that was trained for `max_positions`. Every kind follows transformers 5.17
// (modeling_rope_utils.py).
torch::Tensor rope_frequencies(const RopeSpec& spec, int64_t head_dim, int64_t max_positions,
                               int64_t seq);

// Returns whether the frequencies depend on the length of the sequence.
bool depends_on_length(const RopeSpec& spec);

// A RopeTable computes the angles of the positions of a sequence. One table serves all layers of a
// chain; it caches the angles of the longest sequence and those of the positions of each
// micro-batch in flight. Not thread-safe.
class RopeTable {
 public:
  struct Angles {
    torch::Tensor cos;  // [1 or batch, seq, 1, head_dim / 2], computed in fp32
    torch::Tensor sin;
    bool interleaved = false;  // RopeSpec::interleaved
  };

  RopeTable(const RopeSpec& spec, int64_t head_dim, int64_t max_positions);

  // Returns the angles of positions 0 .. seq-1, in the dtype and on the device of `like`.
  Angles sequence(int64_t seq, const torch::Tensor& like);

  // Returns the angles of the given positions [batch, seq] int64. They are computed once per
  // micro-batch: all layers pass the same tensor, whose values must not change.
  Angles at(const torch::Tensor& positions, const torch::Tensor& like);

 private:
  Angles angles(const torch::Tensor& positions, int64_t seq, const torch::Tensor& like) const;

  RopeSpec spec_;
  int64_t head_dim_;
  int64_t max_positions_;
  Angles cached_;  // of a sequence
  MicroBatchCache<Angles> of_positions_;
};

// Returns x [batch, seq, heads, head_dim], rotated in pairs (i, i + head_dim / 2). Keeps only the
// angles for the backward. Interleaved pairs are moved there first and stay there: products of
// queries and keys, which are moved alike, are the same.
torch::Tensor rotate(const torch::Tensor& x, const RopeTable::Angles& angles);

}  // namespace zeroth::model
