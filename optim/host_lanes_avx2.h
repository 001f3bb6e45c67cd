// Eight floats at once. Included by host_kernels.cpp alone.
#pragma once

#include <immintrin.h>

#include "optim/host_formats.h"

namespace zeroth::optim::kernel {
namespace {

constexpr int64_t kLanes = 8;
using Vec = __m256;
using Ints [[gnu::vector_size(32)]] = uint32_t;

inline Vec spread(float x) {
  return _mm256_set1_ps(x);
}
inline Vec fma(Vec a, Vec b, Vec c) {
  return _mm256_fmadd_ps(a, b, c);
}
inline Vec root(Vec x) {
  return _mm256_sqrt_ps(x);
}
// `magnitude` >= +0 with the sign of x.
inline Vec with_sign(Vec magnitude, Vec x) {
  return _mm256_or_ps(magnitude, _mm256_and_ps(x, _mm256_set1_ps(-0.0F)));
}

// first, first + 1, ...
inline Ints counted(uint32_t first) {
  return Ints{0, 1, 2, 3, 4, 5, 6, 7} + first;
}

inline Vec load(const float* p) {
  return _mm256_loadu_ps(p);
}
inline Vec load(const Bf16* p) {
  const __m128i bits = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
}
inline Vec load(const Fp16* p) {
  return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}

// The upper halves of sums, 0x7fc0 where x is a NaN.
inline __m128i upper_halves(__m256i sums, Vec x) {
  const __m256i is_nan = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
  const __m256i rounded =
      _mm256_blendv_epi8(_mm256_srli_epi32(sums, 16), _mm256_set1_epi32(0x7fc0), is_nan);
  return _mm_packus_epi32(_mm256_castsi256_si128(rounded), _mm256_extracti128_si256(rounded, 1));
}
// To nearest even.
inline __m128i narrow(Vec x, Bf16) {
  const __m256i bits = _mm256_castps_si256(x);
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  const __m256i half = _mm256_add_epi32(_mm256_set1_epi32(0x7fff), odd);
  return upper_halves(_mm256_add_epi32(bits, half), x);
}
// Stochastically, by numbers below 2^16.
inline __m128i narrow(Vec x, Ints random) {
  return upper_halves(_mm256_add_epi32(_mm256_castps_si256(x), (__m256i)random), x);
}
inline __m128i narrow(Vec x, Fp16) {
  return _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

inline void store(float* p, Vec x) {
  _mm256_storeu_ps(p, x);
}
template <typename T>
void store(T* p, Vec x) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), narrow(x, T{}));
}
inline void store(Bf16* p, Vec x, Ints random) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), narrow(x, random));
}
// Past the caches; p is aligned to 16 bytes.
template <typename T>
void stream(T* p, Vec x) {
  _mm_stream_si128(reinterpret_cast<__m128i*>(p), narrow(x, T{}));
}
// Orders stream() before what this thread stores later.
inline void end_stream() {
  _mm_sfence();
}

}  // namespace
}  // namespace zeroth::optim::kernel
