// Causal attention in tiles of 64 tokens: which tiles exist, and the memory that they require.
// Included by attention_forward.h.
#pragma once

#include "model/kernels/cpu/pack.h"

namespace zeroth::model::cpu {
namespace {

// A score that no query sees; its exponential is 0.
constexpr float kMaskedScore = -1e30F;

inline int64_t num_tiles(int64_t seq) {
  return (seq + kTile - 1) / kTile;
}

// VisibleKeys holds the first key that each query of one tile sees, and the minimum and maximum of
// them.
class VisibleKeys {
 public:
  VisibleKeys(const CausalWindow& visible, int64_t query_tile) : query_tile_(query_tile) {
    for (int64_t row = 0; row < kTile; ++row) {
      const int64_t query = query_tile * kTile + row, window = visible.window;
      int64_t first = window > 0 && query >= window ? query - window + 1 : 0;
      if (visible.first_keys != nullptr) {  // queries after the last see what the last does
        const int64_t own = visible.first_keys[query < visible.seq ? query : visible.seq - 1];
        first = own > first ? own : first;
      }
      first_[row] = first;
      min_first_ = row == 0 || first < min_first_ ? first : min_first_;
      max_first_ = first > max_first_ ? first : max_first_;
    }
  }

  int64_t first_tile() const { return min_first_ / kTile; }

  // Sets a score to kMaskedScore where a query does not see a key.
  void mask(int64_t key_tile, float* tile) const {
    const int64_t key = key_tile * kTile;
    if (key_tile < query_tile_ && max_first_ <= key) return;  // every query sees every key
    for (int64_t row = 0; row < kTile; ++row) {
      const int64_t after = query_tile_ * kTile + row - key + 1;  // what follows the query
      float* line = tile + row * kTile;
      for (int64_t i = 0; i < kTile && key + i < first_[row]; ++i) line[i] = kMaskedScore;
      for (int64_t i = after < 0 ? 0 : after; i < kTile; ++i) line[i] = kMaskedScore;
    }
  }

 private:
  int64_t query_tile_;
  int64_t first_[kTile];
  int64_t min_first_ = 0, max_first_ = 0;
};

// Computes a tile [kTile, kTile] of scores, capped and masked but not yet multiplied by the scale.
template <typename T, typename Tile>
void compute_scores(const AttentionHeads<T, Tile>& heads, const VisibleKeys& visible,
                    int64_t key_tile, const Tile* q, const Tile* k_transposed, float* tile) {
  heads.multiply({kTile, kTile, heads.dim, false}, q, k_transposed, tile);
  if (heads.softcap > 0) {
    const float inner = heads.scale / heads.softcap, outer = heads.softcap / heads.scale;
    for (int64_t i = 0; i < kTile * kTile; i += kLanes) {
      store(tile + i, hyperbolic_tangent(load(tile + i) * inner) * outer);
    }
  }
  visible.mask(key_tile, tile);
}

// Subtracts what scores of compute_scores() lose by the distances between queries and keys. Masked
// ones are so low that they stay.
template <typename T, typename Tile>
void lower_scores(const AttentionHeads<T, Tile>& heads, int64_t head, int64_t query_tile,
                  int64_t key_tile, float* tile) {
  if (heads.slopes == nullptr) return;
  const float slope = heads.slopes[head] / heads.scale;
  for (int64_t row = 0; row < kTile; ++row) {
    float* line = tile + row * kTile;
    for (int64_t i = 0; i < kTile; i += kLanes) {
      const int64_t first_distance = (query_tile - key_tile) * kTile + row - i;
      const Vec distance = static_cast<float>(first_distance) - lane_indices();
      store(line + i, load(line + i) - distance * slope);
    }
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

// Returns where the tile begins.
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
inline int64_t attention_scratch(int64_t seq, int64_t dim, int64_t v_dim) {
  const int64_t tiles = num_tiles(seq), wide = dim > v_dim ? dim : v_dim;
  return tiles * kTile * (5 * wide + kTile) + 12 * kTile * (wide > kTile ? wide : kTile) + 512;
}

}  // namespace
}  // namespace zeroth::model::cpu
