// As many floats at once as a register holds, in the vectors of gcc and clang. Included only by the
// sources that are compiled for one instruction set; all is local to them.
#pragma once

#if defined(__F16C__) || defined(__AVX512F__)
#include <immintrin.h>
#endif

#include <cstdint>
#include <cstring>

#include "model/kernels/cpu/kernels.h"

namespace zeroth::model::cpu {
namespace {

// Of a register: vectors of several registers gcc compares number by number.
#if defined(__AVX512F__)
constexpr int64_t kLanes = 16;
#elif defined(__AVX2__)
constexpr int64_t kLanes = 8;
#else
constexpr int64_t kLanes = 4;
#endif

using Vec = float __attribute__((vector_size(4 * kLanes)));
using Bits = uint32_t __attribute__((vector_size(4 * kLanes)));
using Ints = int32_t __attribute__((vector_size(4 * kLanes)));
using Halves = uint16_t __attribute__((vector_size(2 * kLanes)));

#define ZEROTH_INLINE [[gnu::always_inline]] inline

ZEROTH_INLINE Vec spread(float x) {
  return x - Vec{};
}

ZEROTH_INLINE Vec load(const float* p) {
  Vec x;
  std::memcpy(&x, p, sizeof(x));
  return x;
}

ZEROTH_INLINE Vec load(const Bf16* p) {
  Halves halves;
  std::memcpy(&halves, p, sizeof(halves));
  return reinterpret_cast<Vec>(__builtin_convertvector(halves, Bits) << 16);
}

// By instructions where there are any: by arithmetic on the bits elsewhere.
#if defined(__AVX512F__)
ZEROTH_INLINE Vec widened(Halves fp16) {
  return reinterpret_cast<Vec>(_mm512_cvtph_ps(reinterpret_cast<__m256i>(fp16)));
}
ZEROTH_INLINE Halves narrowed(Vec x) {
  return reinterpret_cast<Halves>(
      _mm512_cvtps_ph(reinterpret_cast<__m512>(x), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
#elif defined(__F16C__)
ZEROTH_INLINE Vec widened(Halves fp16) {
  return reinterpret_cast<Vec>(_mm256_cvtph_ps(reinterpret_cast<__m128i>(fp16)));
}
ZEROTH_INLINE Halves narrowed(Vec x) {
  return reinterpret_cast<Halves>(
      _mm256_cvtps_ph(reinterpret_cast<__m256>(x), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
#else
ZEROTH_INLINE Vec widened(Halves fp16) {
  const Bits bits = __builtin_convertvector(fp16, Bits);
  const Bits size = (bits & 0x7fff) << 13, sign = (bits & 0x8000) << 16;
  const Vec finite = reinterpret_cast<Vec>(size) * 0x1p112F;  // exact, subnormals too
  return reinterpret_cast<Vec>(
      sign | (size >= 0xf800000 ? size | 0x7f800000 : reinterpret_cast<Bits>(finite)));
}
ZEROTH_INLINE Halves narrowed(Vec x) {
  const Bits bits = reinterpret_cast<Bits>(x), size = bits & 0x7fffffff;
  const Bits usual = (size + 0xfff + ((size >> 13) & 1) - (uint32_t{112} << 23)) >> 13;
  // Below 2^-14 adding 0.5 rounds to a multiple of 2^-24.
  const Bits small =
      reinterpret_cast<Bits>(reinterpret_cast<Vec>(size) + 0.5F) - uint32_t{0x3f000000};
  Bits fp16 = size < 0x38800000 ? small : usual;
  fp16 = size >= 0x477ff000 ? Bits{} + 0x7c00 : fp16;  // from 65520 on: infinity
  fp16 = size > 0x7f800000 ? Bits{} + 0x7e00 : fp16;
  return __builtin_convertvector(fp16 | ((bits >> 16) & 0x8000), Halves);
}
#endif

ZEROTH_INLINE Vec load(const Fp16* p) {
  Halves halves;
  std::memcpy(&halves, p, sizeof(halves));
  return widened(halves);
}

ZEROTH_INLINE void store(float* p, Vec x) {
  std::memcpy(p, &x, sizeof(x));
}

ZEROTH_INLINE void store(Fp16* p, Vec x) {
  const Halves halves = narrowed(x);
  std::memcpy(p, &halves, sizeof(halves));
}

// To nearest even; a NaN stays one.
ZEROTH_INLINE Bits round_bits(Vec x) {
  const Bits bits = reinterpret_cast<Bits>(x);
  const Bits rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
  return x == x ? rounded : Bits{} + 0x7fc0;
}

ZEROTH_INLINE void store(Bf16* p, Vec x) {
  const Halves halves = __builtin_convertvector(round_bits(x), Halves);
  std::memcpy(p, &halves, sizeof(halves));
}

// As if stored in a T and loaded again.
ZEROTH_INLINE Vec rounded(Vec x, const float*) {
  return x;
}
ZEROTH_INLINE Vec rounded(Vec x, const Bf16*) {
  return reinterpret_cast<Vec>(round_bits(x) << 16);
}
ZEROTH_INLINE Vec rounded(Vec x, const Fp16*) {
  return widened(narrowed(x));
}

// The first `count` < kLanes elements, zeros behind them.
template <typename T>
ZEROTH_INLINE Vec load_part(const T* p, int64_t count) {
  T part[kLanes] = {};
  std::memcpy(part, p, static_cast<size_t>(count) * sizeof(T));
  return load(part);
}

template <typename T>
ZEROTH_INLINE void store_part(T* p, Vec x, int64_t count) {
  T part[kLanes];
  store(part, x);
  std::memcpy(p, part, static_cast<size_t>(count) * sizeof(T));
}

ZEROTH_INLINE float sum(Vec x) {
  float total = 0;
  for (int64_t i = 0; i < kLanes; ++i) total += x[i];
  return total;
}

ZEROTH_INLINE Vec larger(Vec a, Vec b) {
  return a > b ? a : b;
}

ZEROTH_INLINE float largest(Vec x) {
  float most = x[0];
  for (int64_t i = 1; i < kLanes; ++i) most = x[i] > most ? x[i] : most;
  return most;
}

// e^x within 2 ulp: 2^n e^r with |r| <= ln 2 / 2 and a polynomial of degree 6. 0 below -87; NaN
// stays NaN.
ZEROTH_INLINE Vec exponential(Vec x) {
  constexpr float kLog2E = 1.44269504088896341F;
  constexpr float kLn2High = 0.693359375F, kLn2Low = -2.12194440e-4F;
  constexpr float kRound = 12582912.0F;  // 1.5 * 2^23: adding it rounds to a whole number
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

// Calls body(index) for whole vectors and part(index, count) for the rest.
template <typename Body, typename Part>
ZEROTH_INLINE void sweep(int64_t count, const Body& body, const Part& part) {
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) body(i);
  if (i < count) part(i, count - i);
}

#undef ZEROTH_INLINE

}  // namespace
}  // namespace zeroth::model::cpu
