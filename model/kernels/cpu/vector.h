// Loops over memory in vectors of base/simd.h, which compute in fp32. Included only by the sources
// that are compiled for one instruction set; all names are local to them.
#pragma once

#include "base/simd.h"
#include "model/kernels/cpu/kernels.h"

namespace zeroth::model::cpu {
namespace {

using simd::Bits;
using simd::kLanes;
using simd::load;
using simd::spread;
using simd::store;
using simd::Vec;
using Ints = int32_t __attribute__((vector_size(4 * kLanes)));

// Returns x as if it were stored in a T and loaded again.
ZEROTH_INLINE Vec rounded(Vec x, const float*) {
  return x;
}
ZEROTH_INLINE Vec rounded(Vec x, const Bf16*) {
  return reinterpret_cast<Vec>(simd::bf16_bits(x) << 16);
}
ZEROTH_INLINE Vec rounded(Vec x, const Fp16*) {
  return simd::widen(simd::narrow(x, Fp16{}), Fp16{});
}

ZEROTH_INLINE float sum(Vec x) {
  float total = 0;
  for (int64_t i = 0; i < kLanes; ++i) total += x[i];
  return total;
}

// Returns 0, 1, 2, ...
ZEROTH_INLINE Vec lane_indices() {
  Vec x;
  for (int64_t i = 0; i < kLanes; ++i) x[i] = static_cast<float>(i);
  return x;
}

ZEROTH_INLINE Vec lane_max(Vec a, Vec b) {
  return a > b ? a : b;
}

ZEROTH_INLINE float horizontal_max(Vec x) {
  float maximum = x[0];
  for (int64_t i = 1; i < kLanes; ++i) maximum = x[i] > maximum ? x[i] : maximum;
  return maximum;
}

// Returns e^x within 2 ulp: 2^n e^r with |r| <= ln 2 / 2 and a polynomial of degree 6. It is 0
// below -87; NaN stays NaN.
ZEROTH_INLINE Vec exponential(Vec x) {
  constexpr float kLog2E = 1.44269504088896341F;
  constexpr float kLn2High = 0.693359375F, kLn2Low = -2.12194440e-4F;
  constexpr float kRound = 12582912.0F;  // 1.5 * 2^23: adding it rounds to an integer
  const Vec high = spread(88.3F);
  const Vec clamped = x > high ? high : x;
  const Vec n = (clamped * kLog2E + kRound) - kRound;
  const Vec r = clamped - n * kLn2High - n * kLn2Low;
  Vec p = spread(1.9875691500e-4F);
  p = p * r + 1.3981999507e-3F;
  p = p * r + 8.3334519073e-3F;
  p = p * r + 4.1665795894e-2F;
  p = p * r + 1.6666665459e-1F;
  p = p * r + 5.0000001201e-1F;
  p = p * r * r + r + 1.0F;
  const Vec small = x < -87.0F ? Vec{} : n;
  const Ints power = (__builtin_convertvector(small, Ints) + 127) << 23;
  const Vec y = p * reinterpret_cast<Vec>(power);
  return x < -87.0F ? Vec{} : y;
}

// Returns tanh(x) within some ulp: a series for small x, where the quotient loses digits.
ZEROTH_INLINE Vec hyperbolic_tangent(Vec x) {
  const Vec size = x < 0.0F ? -x : x, square = x * x;
  const Vec quotient = 1.0F - 2.0F / (exponential(2.0F * size) + 1.0F);
  const Vec signed_quotient = x < 0.0F ? -quotient : quotient;
  Vec series = spread(-1382.0F / 155925);
  series = series * square + 62.0F / 2835;
  series = series * square - 17.0F / 315;
  series = series * square + 2.0F / 15;
  series = series * square - 1.0F / 3;
  return size < 0.3F ? x + x * square * series : signed_quotient;
}

// FullVector accesses the elements [index, index + kLanes) of arrays.
struct FullVector {
  int64_t index;

  template <typename T>
  ZEROTH_INLINE Vec load(const T* p) const {
    return simd::load(p + index);
  }
  template <typename T>
  ZEROTH_INLINE Vec load_or(const T* p, float) const {
    return load(p);
  }
  template <typename T>
  ZEROTH_INLINE void store(T* p, Vec x) const {
    simd::store(p + index, x);
  }
};

// PartialVector accesses the last elements of arrays, `count` < kLanes from `index` on.
struct PartialVector {
  int64_t index, count;

  // Returns the elements, followed by zeros.
  template <typename T>
  ZEROTH_INLINE Vec load(const T* p) const {
    T part[kLanes] = {};
    std::memcpy(part, p + index, static_cast<size_t>(count) * sizeof(T));
    return simd::load(part);
  }
  // Returns the elements, followed by `other`.
  template <typename T>
  ZEROTH_INLINE Vec load_or(const T* p, float other) const {
    float part[kLanes];
    simd::store(part, load(p));
    for (int64_t lane = count; lane < kLanes; ++lane) part[lane] = other;
    return simd::load(part);
  }
  template <typename T>
  ZEROTH_INLINE void store(T* p, Vec x) const {
    T part[kLanes];
    simd::store(part, x);
    std::memcpy(p + index, part, static_cast<size_t>(count) * sizeof(T));
  }
};

// Calls body(FullVector) for full vectors and body(PartialVector) for the remaining elements.
template <typename Body>
ZEROTH_INLINE void for_each_vector(int64_t count, const Body& body) {
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) body(FullVector{i});
  if (i < count) body(PartialVector{i, count - i});
}

}  // namespace
}  // namespace zeroth::model::cpu
