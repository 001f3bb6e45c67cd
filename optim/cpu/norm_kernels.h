// The loops of optim/squared_norm.h on the CPU, compiled like those of optim/cpu/cpu_kernels.h, and
// the order in which squares are added on the CPU and on a GPU alike: a norm has the same bits
// wherever gradients are stored.
#pragma once

#include <cstdint>

#include "optim/update_constants.h"

namespace zeroth::optim::kernel {

// A tensor is split into chunks, and a chunk into rows of kNormColumns elements. A column adds the
// squares of kNormRows rows in fp32, and these sums in fp64. Then neighbors are added, three times:
// 0 + 1, 2 + 3, ...; then, among each kNormWarp of these sums, the upper half is added to the lower
// until one is left; then the remaining sums are added in order. The sums of a tensor's chunks are
// added likewise: lane i of kNormWarp adds chunk i, i + kNormWarp, ..., and the lanes are added by
// halves.
constexpr int64_t kNormChunk = int64_t{1} << 16, kNormColumns = 2048, kNormRows = 8;
constexpr int64_t kNormPerThread = 8, kNormWarp = 32;

// Returns the sum of kNormWarp values, which it overwrites.
inline double sum_by_halves(double* values) {
  for (int64_t half = kNormWarp / 2; half > 0; half /= 2) {
    for (int64_t i = 0; i < half; ++i) values[i] += values[i + half];
  }
  return values[0];
}

struct NormKernels {
  // Returns the sum of squares of a chunk of at most kNormChunk elements.
  double (*sum_chunk[kNumFormats])(const void* chunk, int64_t count);
};

namespace plain {
extern const NormKernels kNorm;
}
namespace avx2 {
extern const NormKernels kNorm;
}
namespace avx512 {
extern const NormKernels kNorm;
}

}  // namespace zeroth::optim::kernel
