// The kernels of optim/squared_norm.h. Plain pointers and sizes: this header knows no torch;
// squared_norm_op.cpp checks what is passed here. They add in the order of optim/norm_kernels.h.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "optim/norm_kernels.h"

namespace zeroth::optim::kernel {

// Arrays of one format, each cut into pieces from its first element on.
constexpr int kMaxNormArrays = 64;
struct NormArrays {
  const void* at[kMaxNormArrays];
  int64_t count[kMaxNormArrays];
  int64_t first_chunk[kMaxNormArrays + 1];  // behind the last array: how many pieces there are
  int arrays = 0;
};

// Writes the sum of squares of each piece to parts [pieces], fp64. Queued on `stream`.
void square_chunks(Format format, const NormArrays& arrays, double* parts, cudaStream_t stream);
// sums[i] = the sum of the parts of array i, 0 of an empty one.
void sum_parts(const NormArrays& arrays, const double* parts, double* sums, cudaStream_t stream);

}  // namespace zeroth::optim::kernel
