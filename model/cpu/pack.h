// Tiles of attention in the form that MultiplyTile reads; see kernels.h. Included by tiles.h.
#pragma once

#include "model/cpu/vector.h"

namespace zeroth::model::cpu {
namespace {

constexpr int64_t kTile = 64;  // tokens

// A part of a matrix in memory: `rows` rows of `columns` elements, `stride` apart.
template <typename T>
struct Part {
  const T* data;
  int64_t stride;
  int64_t rows, columns;
};

// What a tile is made of: rows beyond part.rows are zeros.
inline float zero(const float*) {
  return 0;
}
inline Bf16 zero(const Bf16*) {
  return {0};
}

// [kTile, columns] as it is: the left operand.
template <typename T>
void copy_tile(const Part<T>& part, T* tile) {
  for (int64_t row = 0; row < kTile; ++row) {
    T* out = tile + row * part.columns;
    if (row < part.rows) {
      std::memcpy(out, part.data + row * part.stride,
                  static_cast<size_t>(part.columns) * sizeof(T));
    } else {
      for (int64_t i = 0; i < part.columns; ++i) out[i] = zero(out);
    }
  }
}

// [columns, kTile]: the transposed tile as left operand.
template <typename T>
void transpose_tile(const Part<T>& part, T* tile) {
  for (int64_t row = 0; row < kTile; ++row) {
    for (int64_t i = 0; i < part.columns; ++i) {
      tile[i * kTile + row] = row < part.rows ? part.data[row * part.stride + i] : zero(tile);
    }
  }
}

// The tile as right operand: [kTile, columns] in the order of its dtype.
inline void pack_rows(const Part<float>& part, float* tile) {
  copy_tile(part, tile);
}
inline void pack_rows(const Part<Bf16>& part, Bf16* tile) {
  for (int64_t row = 0; row < kTile; ++row) {
    Bf16* out = tile + row / 2 * 2 * part.columns + row % 2;
    for (int64_t i = 0; i < part.columns; ++i) {
      out[2 * i] = row < part.rows ? part.data[row * part.stride + i] : Bf16{0};
    }
  }
}

// The transposed tile as right operand: [columns, kTile].
inline void pack_transposed(const Part<float>& part, float* tile) {
  transpose_tile(part, tile);
}
inline void pack_transposed(const Part<Bf16>& part, Bf16* tile) {
  for (int64_t row = 0; row < kTile; ++row) {
    for (int64_t i = 0; i < part.columns; i += 2) {
      Bf16* out = tile + (i / 2 * kTile + row) * 2;
      const Bf16* in = part.data + row * part.stride + i;
      out[0] = row < part.rows ? in[0] : Bf16{0};
      out[1] = row < part.rows ? in[1] : Bf16{0};
    }
  }
}

// A computed tile [kTile, kTile] fp32, rounded, as left operand ...
template <typename T>
void round_tile(const float* in, T* tile) {
  for (int64_t i = 0; i < kTile * kTile; i += kLanes) store(tile + i, load(in + i));
}

// ... and as right operand.
inline void pack_tile(const float* in, float* tile) {
  round_tile(in, tile);
}
inline void pack_tile(const float* in, Bf16* tile) {
  for (int64_t row = 0; row < kTile; row += 2) {
    for (int64_t i = 0; i < kTile; i += kLanes) {
      const Bits even = round_bits(load(in + row * kTile + i));
      const Bits odd = round_bits(load(in + (row + 1) * kTile + i));
      const Bits pairs = even | (odd << 16);
      std::memcpy(tile + row * kTile + 2 * i, &pairs, sizeof(pairs));
    }
  }
}

// Writes `part.rows` rows of a computed tile [kTile, columns] times a factor per row.
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
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t i = 0; i < columns; i += kLanes) {
      Vec v;
      for (int64_t lane = 0; lane < kLanes; ++lane) v[lane] = in[(i + lane) * kTile + row];
      store(out + row * stride + i, v);
    }
  }
}

}  // namespace
}  // namespace zeroth::model::cpu
