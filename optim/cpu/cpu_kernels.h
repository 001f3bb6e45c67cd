// The loops of updates and norms over arrays in CPU memory, compiled once for each instruction set.
// This header uses plain types only, so that no inline function of another library is compiled for
// an instruction set that the processor may not have.
#pragma once

#include <cstddef>
#include <cstdint>

#include "optim/coded_states.h"
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
  void* states[kMaxStates] = {};  // as many as the formula has; kCodedAdam: codes
  // For kCodedAdam: one maximum per code block, the first of which begins at the first element.
  float* maxima[kMaxStates] = {};
  const CodeTables* tables = nullptr;
  const void* grad = nullptr;
  void* copy = nullptr;
  bool non_temporal = false;    // the copy is written past the caches; it is aligned to 64 bytes
  ElementOffsets offsets = {};  // equal in their upper halves
  RoundingKey keys[kNumArrays] = {};  // like `offsets`, read for bf16 results alone
};

using Kernel = void (*)(const Constants& constants, const UpdateArrays& arrays, int64_t count);

// The kernels of a formula by the formats of gradient and output; null: not supported.
using UpdateKernels = Kernel[kNumFormats][kNumOutputFormats];

// The loops of Lamb's two passes (CpuLamb in optim/lamb.h).
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

// The order in which squares are added on the CPU and on a GPU alike (optim/squared_norm.h): a norm
// has the same bits wherever gradients are stored. A tensor is split into chunks, and a chunk into
// rows of kNormColumns elements. A column adds the squares of kNormRows rows in fp32, and these
// sums in fp64. Then neighbors are added, three times: 0 + 1, 2 + 3, ...; then, among each
// kNormWarp of these sums, the upper half is added to the lower until one is left; then the
// remaining sums are added in order. The sums of a tensor's chunks are added likewise: lane i of
// kNormWarp adds chunk i, i + kNormWarp, ..., and the lanes are added by halves.
constexpr int64_t kNormChunk = int64_t{1} << 16, kNormColumns = 2048, kNormRows = 8;
constexpr int64_t kNormPerThread = 8, kNormWarp = 32;

namespace {
// Returns the sum of kNormWarp values, which it overwrites. Each source has a copy for its own
// instruction set.
inline double sum_by_halves(double* values) {
  for (int64_t half = kNormWarp / 2; half > 0; half /= 2) {
    for (int64_t i = 0; i < half; ++i) values[i] += values[i + half];
  }
  return values[0];
}
}  // namespace

struct CpuKernels {
  UpdateKernels update[kNumFormulas];
  UpdateKernels update_coded;  // kCodedAdam; masters are fp32
  // Lamb's first pass, by the gradient's format: updates the moments and sums the squares of
  // weights and direction.
  Squares (*lamb_sum[kNumFormats])(const Constants& constants, const LambArrays& arrays,
                                   int64_t count);
  // Lamb's second pass, by the copy's format; kFp32 means no copy. minus_rate has been multiplied
  // by the ratio.
  void (*lamb_step[kNumFormats])(const Constants& constants, const LambArrays& arrays,
                                 int64_t count);
  // Returns the sum of squares of a chunk of at most kNormChunk elements.
  double (*sum_chunk[kNumFormats])(const void* chunk, int64_t count);
};

namespace plain {
extern const CpuKernels kKernels;
}
namespace avx2 {
extern const CpuKernels kKernels;
}
namespace avx512 {
extern const CpuKernels kKernels;
}

}  // namespace zeroth::optim::kernel
