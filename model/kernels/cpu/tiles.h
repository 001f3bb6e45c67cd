// Causal attention in tiles of 64 tokens: which tiles exist, and the memory that they require.
// Included by attention_forward.h.
#pragma once

#include "model/kernels/cpu/pack.h"

namespace zeroth::model::cpu {
namespace {

inline int64_t num_tiles(int64_t seq) {
  return (seq + kTile - 1) / kTile;
}

// A CausalWindow determines the keys that the queries of one tile see.
struct CausalWindow {
  int64_t seq, window;

  int64_t first_key(int64_t query) const {
    return window > 0 && query >= window ? query - window + 1 : 0;
  }
  int64_t first_tile(int64_t query_tile) const { return first_key(query_tile * kTile) / kTile; }
  // Returns whether every query of the tile sees every key of the other.
  bool sees_all(int64_t query_tile, int64_t key_tile) const {
    const int64_t last_query = query_tile * kTile + kTile - 1;
    return key_tile < query_tile && first_key(last_query) <= key_tile * kTile;
  }
};

// A score that no query sees; its exponential is 0.
constexpr float kMaskedScore = -1e30F;

// Sets a score to kMaskedScore where a query does not see a key.
inline void mask_tile(const CausalWindow& causal, int64_t query_tile, int64_t key_tile,
                      float* tile) {
  if (causal.sees_all(query_tile, key_tile)) return;
  for (int64_t row = 0; row < kTile; ++row) {
    const int64_t query = query_tile * kTile + row, key = key_tile * kTile;
    float* line = tile + row * kTile;
    for (int64_t i = 0; i < kTile && key + i < causal.first_key(query); ++i) line[i] = kMaskedScore;
    for (int64_t i = query < key ? 0 : query - key + 1; i < kTile; ++i) line[i] = kMaskedScore;
  }
}

// An Arena hands out scratch memory in order.
class Arena {
 public:
  explicit Arena(float* memory) : next_(memory) {}

  template <typename T>
  T* allocate(int64_t count) {
    T* const memory = reinterpret_cast<T*>(next_);
    const auto floats = (count * static_cast<int64_t>(sizeof(T)) + 63) / 64 * 16;
    next_ += floats;
    return memory;
  }

 private:
  float* next_;
};

template <typename T>
T* tile_data(const HeadArray<T>& array, int64_t head, int64_t tile, int64_t dim) {
  return array.data + head * dim + tile * kTile * array.stride;
}

template <typename T>
MatrixView<T> tile_view(const HeadArray<const T>& array, int64_t head, int64_t tile, int64_t seq,
                        int64_t dim) {
  const int64_t rows = seq - tile * kTile < kTile ? seq - tile * kTile : kTile;
  return {tile_data(array, head, tile, dim), array.stride, rows, dim};
}

// Returns floats that suffice for forward and backward: packed tiles and sums of all keys, scores
// of one tile of queries against all keys, and a dozen tiles.
inline int64_t attention_scratch(int64_t seq, int64_t dim) {
  const int64_t tiles = num_tiles(seq);
  return tiles * kTile * (5 * dim + kTile) + 12 * kTile * (dim > kTile ? dim : kTile) + 512;
}

}  // namespace
}  // namespace zeroth::model::cpu
