// Attention, one tile of queries after the other; see kernels.h. Tiles of keys that no query of the
// tile sees are not computed. Included by kernels.cpp.
#pragma once

#include "model/kernels/cpu/tiles.h"

namespace zeroth::model::cpu {
namespace {

// Computes one tile of queries against all keys that it sees. `packed` holds all tiles of k
// transposed and of v, as right operands.
template <typename T, typename Tile>
void attend_tile(const AttentionHeads<T, Tile>& heads, int64_t head, int64_t query_tile,
                 Tile* const* packed, Arena arena) {
  const int64_t dim = heads.dim, v_dim = heads.v_dim, area = kTile * kTile;
  const int64_t seq = heads.visible.seq;
  const VisibleKeys visible(heads.visible, query_tile);
  const int64_t first = visible.first_tile(), count = query_tile - first + 1;
  Tile* q = arena.allocate<Tile>(kTile * dim);
  Tile* p = arena.allocate<Tile>(area);
  float* out = arena.allocate<float>(kTile * v_dim);
  float* scores = arena.allocate<float>(count * area);
  const auto part = tile_view(heads.q, head, query_tile, seq, dim);
  copy_tile(part, q);
  for (int64_t i = 0; i < count; ++i) {
    compute_scores(heads, visible, first + i, q, packed[0] + (first + i) * kTile * dim,
                   scores + i * area);
    lower_scores(heads, head, query_tile, first + i, scores + i * area);
  }
  float inverse[kTile];
  for (int64_t row = 0; row < kTile; ++row) {
    Vec maximum = spread(kMaskedScore);
    for (int64_t i = 0; i < count; ++i) {
      const float* line = scores + i * area + row * kTile;
      for (int64_t j = 0; j < kTile; j += kLanes) maximum = lane_max(load(line + j), maximum);
    }
    float top = horizontal_max(maximum) * heads.scale;
    if (heads.sinks != nullptr && heads.sinks[head] > top) top = heads.sinks[head];
    Vec total = {};
    for (int64_t i = 0; i < count; ++i) {
      float* line = scores + i * area + row * kTile;
      for (int64_t j = 0; j < kTile; j += kLanes) {
        const Vec e = exponential(load(line + j) * heads.scale - top);
        total += e;
        store(line + j, e);
      }
    }
    float length = sum(total);
    if (heads.sinks != nullptr) length += exponential(spread(heads.sinks[head] - top))[0];
    inverse[row] = 1 / length;
    const int64_t query = query_tile * kTile + row;
    if (row < part.rows) heads.lse[head * seq + query] = top + __builtin_logf(length);
  }
  for (int64_t i = 0; i < count; ++i) {
    heads.multiply({kTile, v_dim, kTile, i > 0}, round_tile(scores + i * area, p),
                   packed[1] + (first + i) * kTile * v_dim, out);
  }
  write_rows(out, v_dim, tile_data(heads.out, head, query_tile, v_dim), heads.out.stride, part.rows,
             [&](int64_t row) { return inverse[row]; });
}

template <typename T, typename Tile>
void attention(const AttentionHeads<T, Tile>& heads, float* scratch) {
  Arena arena(scratch);
  const int64_t seq = heads.visible.seq, tiles = num_tiles(seq);
  const int64_t size = kTile * heads.dim, v_size = kTile * heads.v_dim;
  Tile* const packed[2] = {arena.allocate<Tile>(tiles * size),
                           arena.allocate<Tile>(tiles * v_size)};
  for (int64_t tile = 0; tile < tiles; ++tile) {
    pack_transposed(tile_view(heads.k, 0, tile, seq, heads.dim), packed[0] + tile * size);
    pack_rows(tile_view(heads.v, 0, tile, seq, heads.v_dim), packed[1] + tile * v_size);
  }
  for (int64_t head = 0; head < heads.group; ++head) {
    for (int64_t tile = 0; tile < tiles; ++tile) attend_tile(heads, head, tile, packed, arena);
  }
}

}  // namespace
}  // namespace zeroth::model::cpu
