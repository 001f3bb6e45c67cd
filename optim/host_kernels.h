// The loops behind optim/host_update.h, compiled once for each instruction set. Plain types only,
// so that no inline function of another library is compiled for a processor that may not be there.
#pragma once

#include <cstddef>
#include <cstdint>

namespace zeroth::optim::host {

enum Formula : size_t { kAdam, kLion, kAdagrad, kSgd, kSgdMomentum, kFormulas };
enum Format : size_t { kFp32, kBf16, kFp16, kFormats };  // of a gradient; of a copy kFp32 is none

// Factors of one step, by their places in the formulas of host_update.h.
struct Constants {
  float factor = 1, divisor = 1;  // g = wire * factor / divisor: one of the two is 1
  float decay = 0;                // of g = fma(p, decay, g)
  float keep = 1;                 // 1 - lr * decay
  float minus_rate = 0;           // of the last line
  float magnitude = 0;            // Lion: lr
  float keep_first = 0;           // m * this (Lion: beta1), b * this
  float add_first = 0;            // w or w - 1, (1 - beta1) * f, 1 - dampening
  float keep_second = 0;          // v * this, Lion: m * this
  float add_second = 0;           // 1 - beta2, Lion: times f
  float root_divisor = 1;         // sqrt(1 - beta2^n)
  float eps = 0;
  bool from_gradient = false;  // Adam: w >= 0.5; SGD: update 1
  bool nesterov = false;
};

struct Arrays {
  float* master;
  float* states[2];  // those that the formula has
  const void* grad;
  void* copy;
  bool past_caches;  // the copy is written past the caches; it is aligned to 64 bytes
};

using Kernel = void (*)(const Constants& constants, const Arrays& arrays, int64_t count);

struct Kernels {
  Kernel of[kFormulas][kFormats][kFormats];  // formula, gradient, copy
};

namespace plain {
extern const Kernels kKernels;
}
namespace avx2 {
extern const Kernels kKernels;
}
namespace avx512 {
extern const Kernels kKernels;
}

}  // namespace zeroth::optim::host
