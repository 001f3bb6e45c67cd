// One float at a time, in arithmetic of integers: what optim/gpu/lanes.cuh does, for a test on the
// CPU.
#pragma once

#include <bit>

#include "base/float16.h"

namespace zeroth::optim::kernel {
namespace {

constexpr int64_t kLanes = 1;
using Vec = float;
using Ints = uint32_t;

inline Vec spread(float x) {
  return x;
}
inline Vec fma(Vec a, Vec b, Vec c) {
  return __builtin_fmaf(a, b, c);
}
inline Vec root(Vec x) {
  return __builtin_sqrtf(x);
}
inline Vec with_sign(Vec magnitude, Vec x) {
  return __builtin_copysignf(magnitude, x);
}

inline Ints bits_of(Vec x) {
  return std::bit_cast<Ints>(x);
}
inline Vec from_bits(Ints bits) {
  return std::bit_cast<Vec>(bits);
}
template <typename T>
T lookup(const T* table, Ints index) {
  return table[index];
}

// first, first + 1, ...
inline Ints counted(uint32_t first) {
  return first;
}

inline Vec load(const float* p) {
  return *p;
}
inline Vec load(const Bf16* p) {
  return std::bit_cast<float>(static_cast<uint32_t>(p->bits) << 16);
}
inline Vec load(const Fp16* p) {
  const uint32_t sign = static_cast<uint32_t>(p->bits & 0x8000) << 16;
  const uint32_t exponent = p->bits >> 10 & 0x1f, fraction = p->bits & 0x3ff;
  if (exponent == 0) {  // zero and subnormals: fraction * 2^-24, exact
    const float value = static_cast<float>(fraction) * 0x1p-24F;
    return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(value));
  }
  if (exponent < 0x1f) return std::bit_cast<float>(sign | (exponent + 112) << 23 | fraction << 13);
  const uint32_t quiet = fraction != 0 ? 0x400000 : 0;
  return std::bit_cast<float>(sign | 0x7f800000 | quiet | fraction << 13);
}

// To nearest even; a NaN becomes 0x7fc0.
inline Bf16 narrow(Vec x, Bf16) {
  const auto bits = std::bit_cast<uint32_t>(x);
  if (x != x) return {0x7fc0};
  return {static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16)};
}
// Stochastically, by a number below 2^16: of size with the probability that makes the mean x. A NaN
// becomes 0x7fc0.
inline Bf16 narrow(Vec x, Ints random) {
  if (x != x) return {0x7fc0};
  return {static_cast<uint16_t>((std::bit_cast<uint32_t>(x) + random) >> 16)};
}
// To nearest even; a NaN keeps its sign and the top of its payload.
inline Fp16 narrow(Vec x, Fp16) {
  const auto bits = std::bit_cast<uint32_t>(x);
  const uint32_t sign = bits >> 16 & 0x8000, size = bits & 0x7fffffff;
  const auto signed_bits = [&](uint32_t value) {
    return Fp16{static_cast<uint16_t>(sign | value)};
  };
  if (size > 0x7f800000) return signed_bits(0x7e00 | (size >> 13 & 0x3ff));
  if (size >= 0x477ff000) return signed_bits(0x7c00);  // from 65520 on: infinity
  if (size < 0x38800000) {  // below 2^-14: adding 0.5 rounds to a multiple of 2^-24
    const float sum = std::bit_cast<float>(size) + 0.5F;
    return signed_bits(std::bit_cast<uint32_t>(sum) - std::bit_cast<uint32_t>(0.5F));
  }
  return signed_bits((size + 0xfff + (size >> 13 & 1) - (uint32_t{112} << 23)) >> 13);
}

inline void store(float* p, Vec x) {
  *p = x;
}
template <typename T>
void store(T* p, Vec x) {
  *p = narrow(x, T{});
}
inline void store_stochastic(Bf16* p, Vec x, Ints random) {
  *p = narrow(x, random);
}
template <typename T>
void stream(T* p, Vec x) {
  *p = narrow(x, T{});
}
inline void store_fence() {}

}  // namespace
}  // namespace zeroth::optim::kernel
