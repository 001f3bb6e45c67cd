// The loops of optim/squared_norm.h on the host, compiled as those of optim/cpu_kernels.h, and the
// order in which squares are added there and on a GPU alike: a norm has the same bits wherever
// gradients rest.
#pragma once

#include <cstdint>

#include "optim/update_constants.h"

namespace zeroth::optim::kernel {

// A tensor is cut into pieces, and a piece into rows of kNormColumns elements. A column adds the
// squares of kNormRows rows in fp32, and these sums in fp64. Then neighbors are added, three times:
// 0 + 1, 2 + 3, ...; and of each kNormWarp of these sums the upper half to the lower, until one is
// left; and what is left in its order. The sums of a tensor's pieces: lane i of kNormWarp adds
// piece i, i + kNormWarp, ..., and the lanes are added by halves.
constexpr int64_t kNormChunk = int64_t{1} << 16, kNormColumns = 2048, kNormRows = 8;
constexpr int64_t kNormPerThread = 8, kNormWarp = 32;

// Of kNormWarp values; they are overwritten.
inline double sum_by_halves(double* values) {
  for (int64_t half = kNormWarp / 2; half > 0; half /= 2) {
    for (int64_t i = 0; i < half; ++i) values[i] += values[i + half];
  }
  return values[0];
}

struct NormKernels {
  // The sum of squares of a piece of at most kNormChunk elements.
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
