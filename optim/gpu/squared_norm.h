// The kernels of optim/squared_norm.h. Plain pointers and sizes: this header knows no torch;
// squared_norm_op.cpp checks what is passed here.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "optim/update_constants.h"

namespace zeroth::optim::kernel {

// Arrays of one format, each cut into pieces from its first element on.
constexpr int kNormArrays = 64;
constexpr int64_t kNormPiece = int64_t{1} << 16;  // elements
struct NormArrays {
  const void* at[kNormArrays];
  int64_t count[kNormArrays];
  int64_t first_piece[kNormArrays];
  int arrays = 0;
  int64_t pieces = 0;  // of all
};

// Writes the sum of squares of each piece to parts [pieces], fp64. Queued on `stream`.
void square_pieces(Format format, const NormArrays& arrays, double* parts, cudaStream_t stream);
// *sum = the sum of parts [count].
void sum_parts(const double* parts, int64_t count, double* sum, cudaStream_t stream);

}  // namespace zeroth::optim::kernel
