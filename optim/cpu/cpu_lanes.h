// The registers of floats with which update_formulas.h computes on the CPU. Included by
// cpu_kernels.cpp alone, which is compiled without contraction: fused products are written
// explicitly, so that all instruction sets give the same bits.
#pragma once

#include "base/simd.h"

namespace zeroth::optim::kernel {
namespace {

using simd::kLanes;
using simd::load;
using simd::spread;
using simd::store;
using simd::Vec;
using Ints = simd::Bits;

#if defined(__AVX512F__)
ZEROTH_INLINE Vec fma(Vec a, Vec b, Vec c) {
  return _mm512_fmadd_ps(a, b, c);
}
ZEROTH_INLINE Vec root(Vec x) {
  return _mm512_sqrt_ps(x);
}
#elif defined(__AVX2__)
ZEROTH_INLINE Vec fma(Vec a, Vec b, Vec c) {
  return _mm256_fmadd_ps(a, b, c);
}
ZEROTH_INLINE Vec root(Vec x) {
  return _mm256_sqrt_ps(x);
}
#else
ZEROTH_INLINE Vec fma(Vec a, Vec b, Vec c) {
  for (int64_t i = 0; i < kLanes; ++i) c[i] = __builtin_fmaf(a[i], b[i], c[i]);
  return c;
}
ZEROTH_INLINE Vec root(Vec x) {
  for (int64_t i = 0; i < kLanes; ++i) x[i] = __builtin_sqrtf(x[i]);
  return x;
}
#endif

ZEROTH_INLINE Ints bits_of(Vec x) {
  return reinterpret_cast<Ints>(x);
}
ZEROTH_INLINE Vec from_bits(Ints bits) {
  return reinterpret_cast<Vec>(bits);
}

// Return table[index] in each lane. A lookup of a byte reads four.
#if defined(__AVX512F__)
ZEROTH_INLINE Vec lookup(const float* table, Ints index) {
  return _mm512_i32gather_ps(reinterpret_cast<__m512i>(index), table, 4);
}
ZEROTH_INLINE Ints lookup(const uint8_t* table, Ints index) {
  return reinterpret_cast<Ints>(
             _mm512_i32gather_epi32(reinterpret_cast<__m512i>(index), table, 1)) &
         0xff;
}
#elif defined(__AVX2__)
ZEROTH_INLINE Vec lookup(const float* table, Ints index) {
  return _mm256_i32gather_ps(table, reinterpret_cast<__m256i>(index), 4);
}
ZEROTH_INLINE Ints lookup(const uint8_t* table, Ints index) {
  return reinterpret_cast<Ints>(_mm256_i32gather_epi32(reinterpret_cast<const int*>(table),
                                                       reinterpret_cast<__m256i>(index), 1)) &
         0xff;
}
#else
ZEROTH_INLINE Vec lookup(const float* table, Ints index) {
  Vec x;
  for (int64_t i = 0; i < kLanes; ++i) x[i] = table[index[i]];
  return x;
}
ZEROTH_INLINE Ints lookup(const uint8_t* table, Ints index) {
  Ints x;
  for (int64_t i = 0; i < kLanes; ++i) x[i] = table[index[i]];
  return x;
}
#endif

ZEROTH_INLINE Ints load_codes(const uint8_t* p) {
  uint8_t codes[kLanes];
  std::memcpy(codes, p, sizeof(codes));
#if defined(__AVX512F__)
  return reinterpret_cast<Ints>(
      _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(codes))));
#elif defined(__AVX2__)
  return reinterpret_cast<Ints>(
      _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(codes))));
#else
  Ints x;
  for (int64_t i = 0; i < kLanes; ++i) x[i] = codes[i];
  return x;
#endif
}
ZEROTH_INLINE void store_codes(uint8_t* p, Ints codes) {
#if defined(__AVX512F__)
  const __m128i narrow = _mm512_cvtepi32_epi8(reinterpret_cast<__m512i>(codes));
  std::memcpy(p, &narrow, sizeof(narrow));
#elif defined(__AVX2__)
  const auto halves = reinterpret_cast<__m128i>(simd::narrow(codes));
  _mm_storel_epi64(reinterpret_cast<__m128i*>(p), _mm_packus_epi16(halves, halves));
#else
  for (int64_t i = 0; i < kLanes; ++i) p[i] = static_cast<uint8_t>(codes[i]);
#endif
}

// Returns `magnitude` >= +0 with the sign of x.
ZEROTH_INLINE Vec with_sign(Vec magnitude, Vec x) {
  return reinterpret_cast<Vec>(reinterpret_cast<Ints>(magnitude) |
                               (reinterpret_cast<Ints>(x) & 0x80000000));
}

struct None {};  // type of a copy that is not required

// An ArrayPart copies `count` elements of an array, from `begin` on.
struct ArrayPart {
  int64_t begin, count;

  template <typename T>
  void read(const void* array, T* to) const {
    std::memcpy(to, static_cast<const T*>(array) + begin, static_cast<size_t>(count) * sizeof(T));
  }
  template <typename T>
  void write(void* array, const T* from) const {
    std::memcpy(static_cast<T*>(array) + begin, from, static_cast<size_t>(count) * sizeof(T));
  }
};

constexpr int64_t kDoubles = kLanes / 2;  // in a register
using WideVec = double __attribute__((vector_size(8 * kDoubles)));
using NarrowVec = float __attribute__((vector_size(4 * kDoubles)));

struct WideHalves {
  WideVec at[2];
};

// Returns the two halves of x in fp64.
ZEROTH_INLINE WideHalves widened(Vec x) {
  NarrowVec halves[2];
  std::memcpy(halves, &x, sizeof(x));
  return {
      {__builtin_convertvector(halves[0], WideVec), __builtin_convertvector(halves[1], WideVec)}};
}

// Returns first, first + 1, ...
ZEROTH_INLINE Ints counted(uint32_t first) {
  Ints offsets;
  for (int64_t i = 0; i < kLanes; ++i) offsets[i] = first + static_cast<uint32_t>(i);
  return offsets;
}

// Stores x rounded stochastically, with random numbers below 2^16: to the neighbor larger in
// magnitude with the probability that keeps the mean x.
ZEROTH_INLINE void store_stochastic(Bf16* p, Vec x, Ints random) {
  const auto halves = simd::narrow(simd::upper_halves(reinterpret_cast<Ints>(x) + random, x));
  std::memcpy(p, &halves, sizeof(halves));
}

// Stores past the caches; p is aligned to the size of what is stored.
template <typename T>
ZEROTH_INLINE void stream(T* p, Vec x) {
#if defined(__AVX512F__)
  _mm256_stream_si256(reinterpret_cast<__m256i*>(p),
                      reinterpret_cast<__m256i>(simd::narrow(x, T{})));
#elif defined(__AVX2__)
  _mm_stream_si128(reinterpret_cast<__m128i*>(p), reinterpret_cast<__m128i>(simd::narrow(x, T{})));
#else
  store(p, x);
#endif
}
// Orders stream() before what this thread stores later.
ZEROTH_INLINE void store_fence() {
#if defined(__AVX2__)
  _mm_sfence();
#endif
}

}  // namespace
}  // namespace zeroth::optim::kernel
