// Squares are summed in fp32 by a thread, a few of them at a time, and in fp64 from there on: in
// one order, whatever runs beside it.
#include "base/launch.cuh"
#include "optim/gpu/lanes.cuh"
#include "optim/gpu/squared_norm.h"

namespace zeroth::optim::kernel {
namespace {

constexpr int kBlock = 512;
constexpr int kWarp = 32;

template <typename T>
struct alignas(16) Sixteen {
  static constexpr int kSize = 16 / sizeof(T);
  T at[kSize];
};

// In thread 0.
__device__ double sum_of_block(double value) {
  for (int offset = kWarp / 2; offset > 0; offset /= 2) {
    value += __shfl_down_sync(0xffffffff, value, offset);
  }
  __shared__ double of_warp[kBlock / kWarp];
  if (threadIdx.x % kWarp == 0) of_warp[threadIdx.x / kWarp] = value;
  __syncthreads();
  if (threadIdx.x != 0) return 0;
  for (int warp = 1; warp < kBlock / kWarp; ++warp) value += of_warp[warp];
  return value;
}

template <typename T>
__device__ float square(const T& x) {
  const float wide = load(&x);
  return wide * wide;
}

template <typename T>
__global__ void square_kernel(NormArrays arrays, double* parts) {
  using Vector = Sixteen<T>;
  int array = 0;
  while (array + 1 < arrays.arrays && blockIdx.x >= arrays.first_piece[array + 1]) ++array;
  const int64_t begin = (blockIdx.x - arrays.first_piece[array]) * kNormPiece;
  const T* const from = static_cast<const T*>(arrays.at[array]) + begin;
  const int64_t count = min(arrays.count[array] - begin, kNormPiece);
  const bool aligned = reinterpret_cast<uintptr_t>(from) % sizeof(Vector) == 0;
  const int64_t in_vectors = aligned ? count / Vector::kSize * Vector::kSize : 0;
  double sum = 0;
  for (int64_t i = int64_t{threadIdx.x} * Vector::kSize; i < in_vectors;
       i += int64_t{kBlock} * Vector::kSize) {
    const Vector values = *reinterpret_cast<const Vector*>(from + i);
    float few = 0;
#pragma unroll
    for (int k = 0; k < Vector::kSize; ++k) few += square(values.at[k]);
    sum += few;
  }
  for (int64_t i = in_vectors + threadIdx.x; i < count; i += kBlock) sum += square(from[i]);
  sum = sum_of_block(sum);
  if (threadIdx.x == 0) parts[blockIdx.x] = sum;
}

__global__ void sum_kernel(const double* parts, int64_t count, double* sum) {
  double own = 0;
  for (int64_t i = threadIdx.x; i < count; i += kBlock) own += parts[i];
  own = sum_of_block(own);
  if (threadIdx.x == 0) *sum = own;
}

}  // namespace

void square_pieces(Format format, const NormArrays& arrays, double* parts, cudaStream_t stream) {
  const auto blocks = static_cast<unsigned>(arrays.pieces);
  const auto run = format == kFp32   ? square_kernel<float>
                   : format == kBf16 ? square_kernel<Bf16>
                                     : square_kernel<Fp16>;
  launch_kernel(run, blocks, kBlock, stream, arrays, parts);
}

void sum_parts(const double* parts, int64_t count, double* sum, cudaStream_t stream) {
  launch_kernel(sum_kernel, 1, kBlock, stream, parts, count, sum);
}

}  // namespace zeroth::optim::kernel
