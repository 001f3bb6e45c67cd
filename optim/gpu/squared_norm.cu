// Squared norms in the order of addition that optim/cpu/cpu_kernels.h defines: a thread has
// kNormPerThread columns.
#include "base/launch.cuh"
#include "optim/gpu/kernels.h"
#include "optim/gpu/lanes.cuh"

namespace zeroth::optim::kernel {
namespace {

constexpr int kBlock = kNormColumns / kNormPerThread;
constexpr int kWarps = kBlock / kNormWarp;

template <typename T>
struct alignas(16) Columns {
  T at[kNormPerThread];
};

// Returns the sum over the warp, in lane 0.
__device__ double sum_of_warp(double value) {
  for (int offset = kNormWarp / 2; offset > 0; offset /= 2) {
    value += __shfl_down_sync(0xffffffff, value, offset);
  }
  return value;
}

// Returns the sum over the block, in thread 0.
__device__ double sum_of_block(double value) {
  value = sum_of_warp(value);
  __shared__ double of_warp[kWarps];
  if (threadIdx.x % kNormWarp == 0) of_warp[threadIdx.x / kNormWarp] = value;
  __syncthreads();
  if (threadIdx.x != 0) return 0;
  for (int warp = 1; warp < kWarps; ++warp) value += of_warp[warp];
  return value;
}

template <typename T>
__device__ float square(const T& x) {
  const float wide = load(&x);
  return wide * wide;
}

template <typename T>
__global__ void __launch_bounds__(kBlock) square_kernel(NormArrays arrays, double* parts) {
  constexpr int kRows = kNormRows, kRow = kNormColumns, kEach = kNormPerThread;
  int array = 0;
  while (blockIdx.x >= arrays.first_chunk[array + 1]) ++array;
  const int64_t begin = (blockIdx.x - arrays.first_chunk[array]) * kNormChunk;
  const T* const piece = static_cast<const T*>(arrays.at[array]) + begin;
  const int count = static_cast<int>(min(arrays.count[array] - begin, kNormChunk));
  const bool aligned = reinterpret_cast<uintptr_t>(piece) % 16 == 0;
  double sums[kEach] = {};
  for (int rows = 0; rows < count; rows += kRows * kRow) {
    const int own = rows + threadIdx.x * kEach;
    float some[kEach] = {};
    if (aligned && rows + kRows * kRow <= count) {
#pragma unroll
      for (int row = 0; row < kRows; ++row) {
        const auto x = *reinterpret_cast<const Columns<T>*>(piece + own + row * kRow);
#pragma unroll
        for (int k = 0; k < kEach; ++k) some[k] += square(x.at[k]);
      }
    } else {
      for (int at = own; at < min(count, rows + kRows * kRow); at += kRow) {
#pragma unroll
        for (int k = 0; k < kEach; ++k) some[k] += at + k < count ? square(piece[at + k]) : 0;
      }
    }
#pragma unroll
    for (int k = 0; k < kEach; ++k) sums[k] += some[k];
  }
  const double sum = sum_of_block(((sums[0] + sums[1]) + (sums[2] + sums[3])) +
                                  ((sums[4] + sums[5]) + (sums[6] + sums[7])));
  if (threadIdx.x == 0) parts[blockIdx.x] = sum;
}

// Sums the parts of each array in a block of one warp.
__global__ void sum_kernel(NormArrays arrays, const double* parts, double* sums) {
  const int64_t end = arrays.first_chunk[blockIdx.x + 1];
  double own = 0;
  for (int64_t i = arrays.first_chunk[blockIdx.x] + threadIdx.x; i < end; i += kNormWarp) {
    own += parts[i];
  }
  own = sum_of_warp(own);
  if (threadIdx.x == 0) sums[blockIdx.x] = own;
}

}  // namespace

void square_chunks(Format format, const NormArrays& arrays, double* parts, cudaStream_t stream) {
  const auto blocks = static_cast<unsigned>(arrays.first_chunk[arrays.arrays]);
  if (blocks == 0) return;
  const auto run = format == kFp32   ? square_kernel<float>
                   : format == kBf16 ? square_kernel<Bf16>
                                     : square_kernel<Fp16>;
  launch_kernel(run, blocks, kBlock, stream, arrays, parts);
}

void sum_parts(const NormArrays& arrays, const double* parts, double* sums, cudaStream_t stream) {
  launch_kernel(sum_kernel, arrays.arrays, kNormWarp, stream, arrays, parts, sums);
}

}  // namespace zeroth::optim::kernel
