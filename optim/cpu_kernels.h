// The loops behind optim/cpu_update.h, compiled once for each instruction set. Plain types only,
// so that no inline function of another library is compiled for a processor that may not be there.
#pragma once

#include <cstddef>
#include <cstdint>

#include "optim/update_constants.h"

namespace zeroth::optim::kernel {

// How the results of an update rest: all in fp32, with or without a 16-bit copy of the master; the
// master alone in bf16; master and states in bf16. bf16 is rounded stochastically, and only for
// gradients in fp32 or bf16.
enum OutputFormat : size_t {
  kNoCopy,
  kBf16Copy,
  kFp16Copy,
  kBf16Master,
  kAllBf16,
  kNumOutputFormats
};

struct UpdateArrays {
  void* master = nullptr;
  void* states[2] = {};  // those that the formula has
  const void* grad = nullptr;
  void* copy = nullptr;
  bool non_temporal = false;    // the copy is written past the caches; it is aligned to 64 bytes
  ElementOffsets offsets = {};  // alike in their upper halves
  RoundingKey keys[kNumArrays] = {};  // like `numbers` read for bf16 results alone
};

using Kernel = void (*)(const Constants& constants, const UpdateArrays& arrays, int64_t count);

struct UpdateKernels {
  Kernel table[kNumFormulas][kNumFormats][kNumOutputFormats];  // null: there is none
};

namespace plain {
extern const UpdateKernels kKernels;
}
namespace avx2 {
extern const UpdateKernels kKernels;
}
namespace avx512 {
extern const UpdateKernels kKernels;
}

}  // namespace zeroth::optim::kernel
