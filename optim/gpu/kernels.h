// The CUDA kernels of optim. Arguments are plain pointers and sizes: this header includes no torch;
// update_ops.cpp checks what is passed here.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "optim/cpu/cpu_kernels.h"
#include "optim/gpu/device_update.h"

namespace zeroth::optim::kernel {

// Queues an update on `stream`.
void launch_update(const DeviceUpdate& update, cudaStream_t stream);

// NormArrays are arrays of one format, each split into chunks from its first element on.
constexpr int kMaxNormArrays = 64;
struct NormArrays {
  const void* at[kMaxNormArrays];
  int64_t count[kMaxNormArrays];
  int64_t first_chunk[kMaxNormArrays + 1];  // after the last array: number of chunks
  int arrays = 0;
};

// Writes the sum of squares of each chunk to parts [chunks], fp64, added in the order of
// optim/cpu/cpu_kernels.h. Queued on `stream`.
void square_chunks(Format format, const NormArrays& arrays, double* parts, cudaStream_t stream);
// Computes sums[i] = the sum of the parts of array i, 0 for an empty one. Queued on `stream`.
void sum_parts(const NormArrays& arrays, const double* parts, double* sums, cudaStream_t stream);

}  // namespace zeroth::optim::kernel
