// CUDA's half for the CPU; found in place of CUDA's header.
#pragma once

#include <cuda_runtime.h>

struct __half {
  uint16_t bits;
};

inline uint16_t __half_as_ushort(__half value) {
  return value.bits;
}
inline __half __ushort_as_half(uint16_t bits) {
  return {bits};
}

inline float __half2float(__half value) {
  const uint32_t sign = static_cast<uint32_t>(value.bits & 0x8000) << 16;
  const uint32_t exponent = value.bits >> 10 & 0x1f, fraction = value.bits & 0x3ff;
  if (exponent == 0) {  // zero and subnormals are multiples of 2^-24
    return __uint_as_float(sign | __float_as_uint(static_cast<float>(fraction) * 0x1p-24F));
  }
  if (exponent < 0x1f) return __uint_as_float(sign | (exponent + 112) << 23 | fraction << 13);
  return __uint_as_float(fraction != 0 ? 0x7fffffff : sign | 0x7f800000);
}
// To nearest even; a NaN becomes 0x7fff.
inline __half __float2half_rn(float value) {
  const uint32_t bits = __float_as_uint(value);
  const uint32_t sign = bits >> 16 & 0x8000, size = bits & 0x7fffffff;
  const auto signed_bits = [&](uint32_t half) {
    return __half{static_cast<uint16_t>(sign | half)};
  };
  if (size > 0x7f800000) return {0x7fff};
  if (size >= 0x477ff000) return signed_bits(0x7c00);  // from 65520 on: infinity
  if (size < 0x38800000) {  // below 2^-14: adding 0.5 rounds to a multiple of 2^-24
    const float sum = __uint_as_float(size) + 0.5F;
    return signed_bits(__float_as_uint(sum) - __float_as_uint(0.5F));
  }
  return signed_bits((size + 0xfff + (size >> 13 & 1) - (uint32_t{112} << 23)) >> 13);
}

struct __half2 {
  __half x, y;
};
inline __half2 __floats2half2_rn(float x, float y) {
  return {__float2half_rn(x), __float2half_rn(y)};
}
