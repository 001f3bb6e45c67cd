// Sixteen bytes of elements at a time, computed in fp32.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

namespace zeroth::model::gpu {

__device__ inline float widen(float value) {
  return value;
}
__device__ inline float widen(__nv_bfloat16 value) {
  return __bfloat162float(value);
}
__device__ inline float widen(__half value) {
  return __half2float(value);
}

template <typename T>
__device__ inline T narrow(float value);
template <>
__device__ inline float narrow<float>(float value) {
  return value;
}
template <>
__device__ inline __nv_bfloat16 narrow<__nv_bfloat16>(float value) {
  return __float2bfloat16_rn(value);
}
template <>
__device__ inline __half narrow<__half>(float value) {
  return __float2half_rn(value);
}

template <typename T>
struct alignas(16) Vector {
  static constexpr int kSize = 16 / sizeof(T);
  T at[kSize];
};

template <typename T>
__device__ inline Vector<T> load(const T* from) {
  return *reinterpret_cast<const Vector<T>*>(from);
}

template <typename T>
__device__ inline void store(T* to, const Vector<T>& value) {
  *reinterpret_cast<Vector<T>*>(to) = value;
}

}  // namespace zeroth::model::gpu
