// Element types on a GPU, and a Vector: sixteen bytes of elements, computed in fp32.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <cstring>

#include "model/kernels/gpu/fused.h"

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

// Words are the sixteen bytes of a Vector as 32-bit words: 16-bit elements are widened and rounded
// in pairs, with half of the instructions that single ones need.
struct alignas(16) Words {
  uint32_t at[4];
};

template <typename T>
struct Wide {
  float at[Vector<T>::kSize];
};

__device__ inline void widen_word(uint32_t word, float* to, float) {
  *to = __uint_as_float(word);
}
__device__ inline void widen_word(uint32_t word, float* to, __nv_bfloat16) {
  to[0] = __uint_as_float(word << 16);
  to[1] = __uint_as_float(word & 0xffff0000);
}
__device__ inline void widen_word(uint32_t word, float* to, __half) {
  to[0] = __half2float(__ushort_as_half(static_cast<unsigned short>(word & 0xffff)));
  to[1] = __half2float(__ushort_as_half(static_cast<unsigned short>(word >> 16)));
}

__device__ inline uint32_t narrow_word(const float* from, float) {
  return __float_as_uint(*from);
}
__device__ inline uint32_t narrow_word(const float* from, __nv_bfloat16) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(from[0], from[1]);
  uint32_t word;
  memcpy(&word, &pair, sizeof word);
  return word;
}
__device__ inline uint32_t narrow_word(const float* from, __half) {
  const __half2 pair = __floats2half2_rn(from[0], from[1]);
  uint32_t word;
  memcpy(&word, &pair, sizeof word);
  return word;
}

template <typename T>
__device__ inline Wide<T> widen(const Words& words) {
  Wide<T> wide;
#pragma unroll
  for (int i = 0; i < 4; ++i) widen_word(words.at[i], wide.at + i * Vector<T>::kSize / 4, T());
  return wide;
}

template <typename T>
__device__ inline Words narrow(const Wide<T>& wide) {
  Words words;
#pragma unroll
  for (int i = 0; i < 4; ++i) words.at[i] = narrow_word(wide.at + i * Vector<T>::kSize / 4, T());
  return words;
}

// Calls launch(T()) for the element's type.
template <typename Launch>
void dispatch_element(ElementType element, Launch&& launch) {
  switch (element) {
    case ElementType::kFloat:
      return launch(float());
    case ElementType::kBfloat16:
      return launch(__nv_bfloat16());
    case ElementType::kHalf:
      return launch(__half());
  }
}

}  // namespace zeroth::model::gpu
