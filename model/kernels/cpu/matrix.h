// Converts matrices between memory and the fp32 tiles that products read; see kernels.h. Included
// by pack.h.
#pragma once

#include "model/kernels/cpu/vector.h"

namespace zeroth::model::cpu {
namespace {

// Converts [rows, columns] between float and a 16-bit type, or copies it.
template <typename From, typename To>
void convert(const MatrixView<From>& from, To* to, int64_t stride) {
  for (int64_t row = 0; row < from.rows; ++row) {
    const From* in = from.data + row * from.stride;
    To* out = to + row * stride;
    for_each_vector(from.columns, [&](const auto& at) { at.store(out, at.load(in)); });
  }
}

using Vec8 = float __attribute__((vector_size(32)));

// Transposes eight rows of eight floats in registers.
[[gnu::always_inline]] inline void transpose_eight(const float* from, int64_t from_stride,
                                                   float* to, int64_t to_stride) {
  Vec8 in[8], pairs[8], fours[8];
  for (int64_t i = 0; i < 8; ++i) std::memcpy(&in[i], from + i * from_stride, sizeof(Vec8));
  for (int64_t i = 0; i < 8; i += 2) {
    pairs[i] = __builtin_shufflevector(in[i], in[i + 1], 0, 8, 1, 9, 4, 12, 5, 13);
    pairs[i + 1] = __builtin_shufflevector(in[i], in[i + 1], 2, 10, 3, 11, 6, 14, 7, 15);
  }
  for (int64_t i = 0; i < 8; i += 4) {
    for (int64_t j = 0; j < 2; ++j) {
      const Vec8 a = pairs[i + j], b = pairs[i + j + 2];
      fours[i + 2 * j] = __builtin_shufflevector(a, b, 0, 1, 8, 9, 4, 5, 12, 13);
      fours[i + 2 * j + 1] = __builtin_shufflevector(a, b, 2, 3, 10, 11, 6, 7, 14, 15);
    }
  }
  for (int64_t i = 0; i < 4; ++i) {
    const Vec8 upper = __builtin_shufflevector(fours[i], fours[i + 4], 0, 1, 2, 3, 8, 9, 10, 11);
    const Vec8 lower = __builtin_shufflevector(fours[i], fours[i + 4], 4, 5, 6, 7, 12, 13, 14, 15);
    std::memcpy(to + i * to_stride, &upper, sizeof(upper));
    std::memcpy(to + (i + 4) * to_stride, &lower, sizeof(lower));
  }
}

inline void transpose(const MatrixView<float>& from, float* to, int64_t stride) {
  const int64_t rows = from.rows / 8 * 8, columns = from.columns / 8 * 8;
  for (int64_t column = 0; column < columns; column += 8) {
    for (int64_t row = 0; row < rows; row += 8) {
      transpose_eight(from.data + row * from.stride + column, from.stride,
                      to + column * stride + row, stride);
    }
  }
  for (int64_t row = 0; row < from.rows; ++row) {
    for (int64_t column = row < rows ? columns : 0; column < from.columns; ++column) {
      to[column * stride + row] = from.data[row * from.stride + column];
    }
  }
}

// Side of the squares that are widened first and then transposed within the L1 cache.
constexpr int64_t kSquare = 64;

template <typename T>
void widen_transposed(const MatrixView<T>& from, float* to, int64_t stride) {
  float square[kSquare * kSquare];
  for (int64_t row = 0; row < from.rows; row += kSquare) {
    for (int64_t column = 0; column < from.columns; column += kSquare) {
      const MatrixView<T> part = {
          from.data + row * from.stride + column, from.stride,
          from.rows - row < kSquare ? from.rows - row : kSquare,
          from.columns - column < kSquare ? from.columns - column : kSquare};
      float* const out = to + column * stride + row;
      if constexpr (sizeof(T) == sizeof(float)) {
        transpose(part, out, stride);
      } else {
        convert(part, square, kSquare);
        transpose({square, kSquare, part.rows, part.columns}, out, stride);
      }
    }
  }
}

}  // namespace
}  // namespace zeroth::model::cpu
