// What kernels use of CUDA's language and runtime, for the CPU; found in place of CUDA's header.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "tests/emulated_gpu/emulation.h"

#define __host__
#define __device__
#define __global__
#define __forceinline__ inline
#define __launch_bounds__(...)
// Blocks of one thread of the CPU run one after the other, so they share it.
#define __shared__ static thread_local

using cudaStream_t = struct CUstream_st*;
using zeroth::emulated::dim3;
using zeroth::emulated::uint3;

inline constinit thread_local uint3 threadIdx = {}, blockIdx = {};
inline constinit thread_local uint3 blockDim = {}, gridDim = {};

using std::max;
using std::min;

inline void __syncthreads(const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  zeroth::emulated::wait_for_block({file, line});
}

template <typename T>
T __shfl_xor_sync(unsigned mask, T value, int offset, const char* file = __builtin_FILE(),
                  int line = __builtin_LINE()) {
  const int source = zeroth::emulated::this_lane() ^ offset;
  return zeroth::emulated::exchange(mask, value, source, {file, line});
}
// The last `offset` lanes keep their own.
template <typename T>
T __shfl_down_sync(unsigned mask, T value, unsigned offset, const char* file = __builtin_FILE(),
                   int line = __builtin_LINE()) {
  const int lane = zeroth::emulated::this_lane(), source = lane + static_cast<int>(offset);
  return zeroth::emulated::exchange(mask, value, source < zeroth::emulated::kWarp ? source : lane,
                                    {file, line});
}

inline float __uint_as_float(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}
inline uint32_t __float_as_uint(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

// As a GPU takes it, by powers of two, whose error grows with |x|.
inline float __expf(float x) {
  return std::exp2f(x * 1.44269504F);
}
inline float __fmaf_rn(float a, float b, float c) {
  return __builtin_fmaf(a, b, c);
}
inline float __fsqrt_rn(float x) {
  return __builtin_sqrtf(x);
}
