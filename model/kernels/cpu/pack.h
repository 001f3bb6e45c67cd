// Packs tiles of attention in the form that MultiplyTile reads; see kernels.h. Included by tiles.h.
#pragma once

#include "model/kernels/cpu/matrix.h"

namespace zeroth::model::cpu {
namespace {

constexpr int64_t kTile = 64;  // tokens

// Fills a tile with zeros: rows of a tile from part.rows on are zeros. `Tile` is float, or T
// itself.
template <typename Tile>
void clear(Tile* tile, int64_t count) {
  std::memset(tile, 0, static_cast<size_t>(count) * sizeof(Tile));
}

// Copies a tile [kTile, columns] unchanged: the left operand.
template <typename T>
void copy_tile(const MatrixView<T>& part, float* tile) {
  convert(part, tile, part.columns);
  clear(tile + part.rows * part.columns, (kTile - part.rows) * part.columns);
}
inline void copy_tile(const MatrixView<Bf16>& part, Bf16* tile) {
  for (int64_t row = 0; row < part.rows; ++row) {
    std::memcpy(tile + row * part.columns, part.data + row * part.stride,
                static_cast<size_t>(part.columns) * sizeof(Bf16));
  }
  clear(tile + part.rows * part.columns, (kTile - part.rows) * part.columns);
}

// Writes the transposed tile as left operand, [columns, kTile].
template <typename T>
void transpose_tile(const MatrixView<T>& part, float* tile) {
  if (part.rows < kTile) clear(tile, part.columns * kTile);
  widen_transposed(part, tile, kTile);
}
inline void transpose_tile(const MatrixView<Bf16>& part, Bf16* tile) {
  for (int64_t row = 0; row < kTile; ++row) {
    for (int64_t i = 0; i < part.columns; ++i) {
      tile[i * kTile + row] = row < part.rows ? part.data[row * part.stride + i] : Bf16{0};
    }
  }
}

// Writes the tile as right operand, [kTile, columns] in the order of its dtype.
template <typename T>
void pack_rows(const MatrixView<T>& part, float* tile) {
  copy_tile(part, tile);
}
inline void pack_rows(const MatrixView<Bf16>& part, Bf16* tile) {
  for (int64_t row = 0; row < kTile; ++row) {
    Bf16* out = tile + row / 2 * 2 * part.columns + row % 2;
    for (int64_t i = 0; i < part.columns; ++i) {
      out[2 * i] = row < part.rows ? part.data[row * part.stride + i] : Bf16{0};
    }
  }
}

// Writes the transposed tile as right operand, [columns, kTile].
template <typename T>
void pack_transposed(const MatrixView<T>& part, float* tile) {
  transpose_tile(part, tile);
}
inline void pack_transposed(const MatrixView<Bf16>& part, Bf16* tile) {
  for (int64_t row = 0; row < kTile; ++row) {
    for (int64_t i = 0; i < part.columns; i += 2) {
      Bf16* out = tile + (i / 2 * kTile + row) * 2;
      const Bf16* in = part.data + row * part.stride + i;
      out[0] = row < part.rows ? in[0] : Bf16{0};
      out[1] = row < part.rows ? in[1] : Bf16{0};
    }
  }
}

// Returns a computed fp32 tile [kTile, kTile] as left operand: itself if tiles are fp32, otherwise
// a copy rounded into `tile`.
inline const float* round_tile(const float* in, float*) {
  return in;
}
inline const Bf16* round_tile(const float* in, Bf16* tile) {
  for (int64_t i = 0; i < kTile * kTile; i += kLanes) store(tile + i, load(in + i));
  return tile;
}

// Returns a computed fp32 tile [kTile, kTile] as right operand, like round_tile().
inline const float* pack_tile(const float* in, float*) {
  return in;
}
inline const Bf16* pack_tile(const float* in, Bf16* tile) {
  for (int64_t row = 0; row < kTile; row += 2) {
    for (int64_t i = 0; i < kTile; i += kLanes) {
      const Bits even = simd::bf16_bits(load(in + row * kTile + i));
      const Bits odd = simd::bf16_bits(load(in + (row + 1) * kTile + i));
      const Bits pairs = even | (odd << 16);
      std::memcpy(tile + row * kTile + 2 * i, &pairs, sizeof(pairs));
    }
  }
  return tile;
}

// Writes `rows` rows of a computed tile [kTile, columns] times a factor per row.
template <typename T, typename Factor>
void write_rows(const float* in, int64_t columns, T* out, int64_t stride, int64_t rows,
                const Factor& factor) {
  for (int64_t row = 0; row < rows; ++row) {
    const float f = factor(row);
    for (int64_t i = 0; i < columns; i += kLanes) {
      store(out + row * stride + i, load(in + row * columns + i) * f);
    }
  }
}

// Writes the transpose of a computed [columns, kTile], `rows` of its kTile columns.
template <typename T>
void write_transposed(const float* in, int64_t columns, T* out, int64_t stride, int64_t rows) {
  constexpr int64_t kStrip = 16;
  for (int64_t first = 0; first < columns; first += kStrip) {
    float transposed[kTile * kStrip];
    transpose({in + first * kTile, kTile, kStrip, rows}, transposed, kStrip);
    for (int64_t row = 0; row < rows; ++row) {
      for (int64_t i = 0; i < kStrip; i += kLanes) {
        store(out + row * stride + first + i, load(transposed + row * kStrip + i));
      }
    }
  }
}

}  // namespace
}  // namespace zeroth::model::cpu
