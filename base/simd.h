// SIMD vectors of floats, one register wide, by the vector extensions of gcc and clang. Only
// sources that are compiled for one instruction set include this header; everything is local to
// them. Conversions to 16-bit floats round to nearest even, with the same bits on every instruction
// set.
#pragma once

#if defined(__F16C__) || defined(__AVX512F__)
#include <immintrin.h>
#endif

#include <cstdint>
#include <cstring>

#include "base/float16.h"

#define ZEROTH_INLINE [[gnu::always_inline]] inline

namespace zeroth::simd {
namespace {

// Floats per register. gcc compares vectors that span several registers element by element.
#if defined(__AVX512F__)
constexpr int64_t kLanes = 16;
#elif defined(__AVX2__)
constexpr int64_t kLanes = 8;
#else
constexpr int64_t kLanes = 4;
#endif

using Vec = float __attribute__((vector_size(4 * kLanes)));
using Bits = uint32_t __attribute__((vector_size(4 * kLanes)));
using HalfVec = uint16_t __attribute__((vector_size(2 * kLanes)));

ZEROTH_INLINE Vec spread(float x) {
  return x - Vec{};
}

// Intrinsics replace conversions that gcc does not vectorize itself.
#if defined(__AVX512F__)
ZEROTH_INLINE Bits widen(HalfVec x) {
  return reinterpret_cast<Bits>(_mm512_cvtepu16_epi32(reinterpret_cast<__m256i>(x)));
}
ZEROTH_INLINE HalfVec narrow(Bits x) {
  return reinterpret_cast<HalfVec>(_mm512_cvtepi32_epi16(reinterpret_cast<__m512i>(x)));
}
#elif defined(__AVX2__)
ZEROTH_INLINE Bits widen(HalfVec x) {
  return reinterpret_cast<Bits>(_mm256_cvtepu16_epi32(reinterpret_cast<__m128i>(x)));
}
ZEROTH_INLINE HalfVec narrow(Bits x) {
  const auto bits = reinterpret_cast<__m256i>(x);
  return reinterpret_cast<HalfVec>(
      _mm_packus_epi32(_mm256_castsi256_si128(bits), _mm256_extracti128_si256(bits, 1)));
}
#else
ZEROTH_INLINE Bits widen(HalfVec x) {
  return __builtin_convertvector(x, Bits);
}
ZEROTH_INLINE HalfVec narrow(Bits x) {
  return __builtin_convertvector(x, HalfVec);
}
#endif

ZEROTH_INLINE Vec widen(HalfVec halves, Bf16) {
  return reinterpret_cast<Vec>(widen(halves) << 16);
}

// Returns the upper halves of `sums`, or 0x7fc0 where x is a NaN.
ZEROTH_INLINE Bits upper_halves(Bits sums, Vec x) {
  return x == x ? sums >> 16 : Bits{} + 0x7fc0;
}
ZEROTH_INLINE Bits bf16_bits(Vec x) {
  const Bits bits = reinterpret_cast<Bits>(x);
  return upper_halves(bits + 0x7fff + ((bits >> 16) & 1), x);
}
ZEROTH_INLINE HalfVec narrow(Vec x, Bf16) {
  return narrow(bf16_bits(x));
}

// These conversions use instructions where the CPU has them, and arithmetic on the bits elsewhere.
// A NaN becomes quiet and keeps its sign and the top of its payload.
#if defined(__AVX512F__)
ZEROTH_INLINE Vec widen(HalfVec halves, Fp16) {
  return reinterpret_cast<Vec>(_mm512_cvtph_ps(reinterpret_cast<__m256i>(halves)));
}
ZEROTH_INLINE HalfVec narrow(Vec x, Fp16) {
  return reinterpret_cast<HalfVec>(
      _mm512_cvtps_ph(reinterpret_cast<__m512>(x), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
#elif defined(__F16C__)
ZEROTH_INLINE Vec widen(HalfVec halves, Fp16) {
  return reinterpret_cast<Vec>(_mm256_cvtph_ps(reinterpret_cast<__m128i>(halves)));
}
ZEROTH_INLINE HalfVec narrow(Vec x, Fp16) {
  return reinterpret_cast<HalfVec>(
      _mm256_cvtps_ph(reinterpret_cast<__m256>(x), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
#else
ZEROTH_INLINE Vec widen(HalfVec halves, Fp16) {
  const Bits bits = widen(halves);
  const Bits size = (bits & 0x7fff) << 13, sign = (bits & 0x8000) << 16;
  const Vec finite = reinterpret_cast<Vec>(size) * 0x1p112F;  // exact, subnormals too
  const Bits infinite = size | (size > 0xf800000 ? Bits{} + 0x7fc00000 : Bits{} + 0x7f800000);
  return reinterpret_cast<Vec>(sign |
                               (size >= 0xf800000 ? infinite : reinterpret_cast<Bits>(finite)));
}
ZEROTH_INLINE HalfVec narrow(Vec x, Fp16) {
  const Bits bits = reinterpret_cast<Bits>(x), size = bits & 0x7fffffff;
  const Bits usual = (size + 0xfff + ((size >> 13) & 1) - (uint32_t{112} << 23)) >> 13;
  // Below 2^-14 adding 0.5 rounds to a multiple of 2^-24.
  const Bits small =
      reinterpret_cast<Bits>(reinterpret_cast<Vec>(size) + 0.5F) - uint32_t{0x3f000000};
  Bits fp16 = size < 0x38800000 ? small : usual;
  fp16 = size >= 0x477ff000 ? Bits{} + 0x7c00 : fp16;  // 65520 and above become infinity
  fp16 = size > 0x7f800000 ? 0x7e00 | ((size >> 13) & 0x3ff) : fp16;
  return narrow(fp16 | ((bits >> 16) & 0x8000));
}
#endif

ZEROTH_INLINE Vec load(const float* p) {
  Vec x;
  std::memcpy(&x, p, sizeof(x));
  return x;
}
template <typename T>
ZEROTH_INLINE Vec load(const T* p) {
  HalfVec halves;
  std::memcpy(&halves, p, sizeof(halves));
  return widen(halves, T{});
}

ZEROTH_INLINE void store(float* p, Vec x) {
  std::memcpy(p, &x, sizeof(x));
}
template <typename T>
ZEROTH_INLINE void store(T* p, Vec x) {
  const HalfVec halves = narrow(x, T{});
  std::memcpy(p, &halves, sizeof(halves));
}

}  // namespace
}  // namespace zeroth::simd
