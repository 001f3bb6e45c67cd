// The loops of squared norms; see CpuKernels in cpu_kernels.h. Included by cpu_kernels.cpp.
#pragma once

#include <cstring>

#include "optim/cpu/cpu_kernels.h"
#include "optim/cpu/cpu_lanes.h"

namespace zeroth::optim::kernel {
namespace {

ZEROTH_INLINE void add_to_columns(double* columns, Vec x) {
  const WideHalves wide = widened(x);
  WideVec sums[2];
  std::memcpy(sums, columns, sizeof(sums));
  for (int64_t k = 0; k < 2; ++k) sums[k] += wide.at[k];
  std::memcpy(columns, sums, sizeof(sums));
}

// Adds the squares of a row to fp32 sums by column. Rows are added one after the other, because
// memory is read fastest that way.
template <typename T>
ZEROTH_INLINE void add_row(const T* row, float* row_sums) {
  for (int64_t column = 0; column < kNormColumns; column += kLanes) {
    const Vec x = load(row + column);
    store(row_sums + column, load(row_sums + column) + x * x);
  }
}

double sum_columns(const double* columns) {
  double sum = 0;
  for (int64_t warp = 0; warp < kNormColumns; warp += kNormWarp * kNormPerThread) {
    double lanes[kNormWarp];
    for (int64_t lane = 0; lane < kNormWarp; ++lane) {
      const double* const c = columns + warp + lane * kNormPerThread;
      lanes[lane] = ((c[0] + c[1]) + (c[2] + c[3])) + ((c[4] + c[5]) + (c[6] + c[7]));
    }
    sum += sum_by_halves(lanes);
  }
  return sum;
}

template <typename T>
double sum_chunk(const void* chunk, int64_t count) {
  const T* from = static_cast<const T*>(chunk);
  double columns[kNormColumns] = {};
  while (count > 0) {
    float row_sums[kNormColumns] = {};
    for (int64_t row = 0; row < kNormRows && count > 0; ++row) {
      T last[kNormColumns];
      if (count < kNormColumns) {  // padded
        std::memcpy(last, from, static_cast<size_t>(count) * sizeof(T));
        std::memset(last + count, 0, static_cast<size_t>(kNormColumns - count) * sizeof(T));
      }
      add_row(count < kNormColumns ? last : from, row_sums);
      from += kNormColumns;
      count -= kNormColumns;
    }
    for (int64_t column = 0; column < kNormColumns; column += kLanes) {
      add_to_columns(columns + column, load(row_sums + column));
    }
  }
  return sum_columns(columns);
}

}  // namespace
}  // namespace zeroth::optim::kernel
