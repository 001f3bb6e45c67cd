// Gradients of attention: scores are recomputed from the log-sum-exp of the forward. Included by
// kernels.cpp.
#pragma once

#include "model/kernels/cpu/tiles.h"

namespace zeroth::model::cpu {
namespace {

// AttentionBackward holds what the backward of all query tiles shares.
template <typename T, typename Tile>
struct AttentionBackward {
  const AttentionHeads<T, Tile>& heads;
  const AttentionGradients<T>& gradients;
  Tile *k_transposed, *k, *v_transposed;  // packed right operands of all tiles
  float *dk, *dv;                         // transposed sums of all tiles, [tiles][dim, kTile]
};

// Computes out . dout of each query of the tile, which the softmax's gradient subtracts.
template <typename T>
void dot_rows(const MatrixView<T>& out, const MatrixView<T>& dout, float* dots) {
  for (int64_t row = 0; row < kTile; ++row) {
    Vec total = {};
    for (int64_t i = 0; row < out.rows && i < out.columns; i += kLanes) {
      total += load(out.data + row * out.stride + i) * load(dout.data + row * dout.stride + i);
    }
    dots[row] = sum(total);
  }
}

// Replaces scores by probabilities, and dp by the scores' gradients, in place. A cap adds its slope
// at the score that compute_scores() left.
template <bool kCapped>
void softmax_gradient(float scale, float softcap, const float* lse, const float* dots,
                      float* scores, float* dp) {
  for (int64_t row = 0; row < kTile; ++row) {
    for (int64_t i = row * kTile; i < (row + 1) * kTile; i += kLanes) {
      const Vec score = load(scores + i);
      const Vec p = exponential(score * scale - lse[row]);
      store(scores + i, p);
      Vec gradient = p * (load(dp + i) - dots[row]) * scale;
      if constexpr (kCapped) {
        const Vec t = lane_max(score * (scale / softcap), spread(-1.0F));  // masked scores, too
        gradient *= 1.0F - t * t;
      }
      store(dp + i, gradient);
    }
  }
}

// Returns the gradient of a sink that `rows` queries see.
inline float sink_gradient(float sink, const float* lse, const float* dots, int64_t rows) {
  float gradient = 0;
  for (int64_t row = 0; row < rows; ++row) {
    gradient -= exponential(spread(sink - lse[row]))[0] * dots[row];
  }
  return gradient;
}

template <typename T, typename Tile>
void backward_tile(const AttentionBackward<T, Tile>& b, int64_t head, int64_t query_tile,
                   Arena arena) {
  const AttentionHeads<T, Tile>& heads = b.heads;
  const int64_t dim = heads.dim, v_dim = heads.v_dim, seq = heads.visible.seq;
  const int64_t size = kTile * dim, v_size = kTile * v_dim, area = kTile * kTile;
  const auto q_part = tile_view(heads.q, head, query_tile, seq, dim);
  const auto dout_part = tile_view(b.gradients.dout, head, query_tile, seq, v_dim);
  Tile *q = arena.allocate<Tile>(size), *q_transposed = arena.allocate<Tile>(size);
  Tile *dout = arena.allocate<Tile>(v_size), *dout_transposed = arena.allocate<Tile>(v_size);
  copy_tile(q_part, q);
  transpose_tile(q_part, q_transposed);
  copy_tile(dout_part, dout);
  transpose_tile(dout_part, dout_transposed);
  float dots[kTile], lse[kTile] = {};
  const HeadArray<const T> out = {heads.out.data, heads.out.stride};
  dot_rows(tile_view(out, head, query_tile, seq, v_dim), dout_part, dots);
  for (int64_t row = 0; row < q_part.rows; ++row) {
    lse[row] = heads.lse[head * seq + query_tile * kTile + row];
  }
  if (heads.sinks != nullptr) {
    b.gradients.dsinks[head] += sink_gradient(heads.sinks[head], lse, dots, q_part.rows);
  }
  float *scores = arena.allocate<float>(area), *dp = arena.allocate<float>(area);
  Tile *left = arena.allocate<Tile>(area), *right = arena.allocate<Tile>(area);
  float* dq = arena.allocate<float>(size);
  const VisibleKeys visible(heads.visible, query_tile);
  const int64_t first = visible.first_tile();
  const auto gradient = heads.softcap > 0 ? softmax_gradient<true> : softmax_gradient<false>;
  for (int64_t tile = first; tile <= query_tile; ++tile) {
    compute_scores(heads, visible, tile, q, b.k_transposed + tile * size, scores);
    lower_scores(heads, head, query_tile, tile, scores);
    heads.multiply({kTile, kTile, v_dim, false}, dout, b.v_transposed + tile * v_size, dp);
    gradient(heads.scale, heads.softcap, lse, dots, scores, dp);
    heads.multiply({v_dim, kTile, kTile, true}, dout_transposed, pack_tile(scores, right),
                   b.dv + tile * v_size);
    heads.multiply({dim, kTile, kTile, true}, q_transposed, pack_tile(dp, right),
                   b.dk + tile * size);
    heads.multiply({kTile, dim, kTile, tile > first}, round_tile(dp, left), b.k + tile * size, dq);
  }
  write_rows(dq, dim, tile_data(b.gradients.dq, head, query_tile, dim), b.gradients.dq.stride,
             q_part.rows, [](int64_t) { return 1.0F; });
}

template <typename T, typename Tile>
void attention_backward(const AttentionHeads<T, Tile>& heads,
                        const AttentionGradients<T>& gradients, float* scratch) {
  Arena arena(scratch);
  const int64_t dim = heads.dim, v_dim = heads.v_dim, seq = heads.visible.seq;
  const int64_t size = kTile * dim, v_size = kTile * v_dim;
  const int64_t tiles = num_tiles(seq), all = tiles * size, all_v = tiles * v_size;
  const AttentionBackward<T, Tile> b{heads,
                                     gradients,
                                     arena.allocate<Tile>(all),
                                     arena.allocate<Tile>(all),
                                     arena.allocate<Tile>(all_v),
                                     arena.allocate<float>(all),
                                     arena.allocate<float>(all_v)};
  std::memset(b.dk, 0, static_cast<size_t>(all) * sizeof(float));
  std::memset(b.dv, 0, static_cast<size_t>(all_v) * sizeof(float));
  for (int64_t head = 0; heads.sinks != nullptr && head < heads.group; ++head) {
    gradients.dsinks[head] = 0;
  }
  for (int64_t tile = 0; tile < tiles; ++tile) {
    const auto k = tile_view(heads.k, 0, tile, seq, dim);
    pack_transposed(k, b.k_transposed + tile * size);
    pack_rows(k, b.k + tile * size);
    pack_transposed(tile_view(heads.v, 0, tile, seq, v_dim), b.v_transposed + tile * v_size);
  }
  for (int64_t head = 0; head < heads.group; ++head) {
    for (int64_t tile = 0; tile < tiles; ++tile) backward_tile(b, head, tile, arena);
  }
  for (int64_t tile = 0; tile < tiles; ++tile) {
    const int64_t rows = tile_view(heads.k, 0, tile, seq, dim).rows;
    write_transposed(b.dk + tile * size, dim, tile_data(gradients.dk, 0, tile, dim),
                     gradients.dk.stride, rows);
    write_transposed(b.dv + tile * v_size, v_dim, tile_data(gradients.dv, 0, tile, v_dim),
                     gradients.dv.stride, rows);
  }
}

}  // namespace
}  // namespace zeroth::model::cpu
