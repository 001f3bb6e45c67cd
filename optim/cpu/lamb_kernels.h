// The loops of Lamb's two passes (optim/cpu/cpu_lamb.h), compiled like those of
// optim/cpu/cpu_kernels.h.
#pragma once

#include <cstdint>

#include "optim/update_constants.h"

namespace zeroth::optim::kernel {

struct LambArrays {
  float* master = nullptr;
  float* states[2] = {};
  const void* grad = nullptr;  // read by the first pass
  void* copy = nullptr;        // written by the second
};

// Squares holds sums of squares, which have the same bits on every instruction set.
struct Squares {
  double weights = 0, direction = 0;
};

struct LambKernels {
  // First pass, by the gradient's format: updates the moments and sums the squares of weights and
  // direction.
  Squares (*sum[kNumFormats])(const Constants& constants, const LambArrays& arrays, int64_t count);
  // Second pass, by the copy's format; kFp32 means no copy. minus_rate has been multiplied by the
  // ratio.
  void (*step[kNumFormats])(const Constants& constants, const LambArrays& arrays, int64_t count);
};

namespace plain {
extern const LambKernels kLamb;
}
namespace avx2 {
extern const LambKernels kLamb;
}
namespace avx512 {
extern const LambKernels kLamb;
}

}  // namespace zeroth::optim::kernel
