// The loops of optim/cpu/cpu_update.h, compiled once for each instruction set. This header uses
// plain types only, so that no inline function of another library is compiled for an instruction
// set that the processor may not have.
#pragma once

#include <cstddef>
#include <cstdint>

#include "optim/update_constants.h"

namespace zeroth::optim::kernel {

// The formats in which the results of an update are stored: all in fp32, with or without a 16-bit
// copy of the master; the master alone in bf16; master and states in bf16. bf16 is rounded
// stochastically, and only for gradients in fp32 or bf16.
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
  void* states[2] = {};  // as many as the formula has
  const void* grad = nullptr;
  void* copy = nullptr;
  bool non_temporal = false;    // the copy is written past the caches; it is aligned to 64 bytes
  ElementOffsets offsets = {};  // equal in their upper halves
  RoundingKey keys[kNumArrays] = {};  // like `offsets`, read for bf16 results alone
};

using Kernel = void (*)(const Constants& constants, const UpdateArrays& arrays, int64_t count);

struct UpdateKernels {
  Kernel table[kNumFormulas][kNumFormats][kNumOutputFormats];  // null: not supported
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
