// Sixteen floats at once. Included by host_kernels.cpp alone.
#pragma once

#include <immintrin.h>

#include "optim/host_formats.h"

namespace zeroth::optim::kernel {
namespace {

constexpr int64_t kLanes = 16;
using Vec = __m512;
using Ints [[gnu::vector_size(64)]] = uint32_t;

inline Vec spread(float x) {
  return _mm512_set1_ps(x);
}
inline Vec fma(Vec a, Vec b, Vec c) {
  return _mm512_fmadd_ps(a, b, c);
}
inline Vec root(Vec x) {
  return _mm512_sqrt_ps(x);
}
// `magnitude` >= +0 with the sign of x.
inline Vec with_sign(Vec magnitude, Vec x) {
  return _mm512_or_ps(magnitude, _mm512_and_ps(x, _mm512_set1_ps(-0.0F)));
}

// first, first + 1, ...
inline Ints counted(uint32_t first) {
  return Ints{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15} + first;
}

inline Vec load(const float* p) {
  return _mm512_loadu_ps(p);
}
inline Vec load(const Bf16* p) {
  const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
}
inline Vec load(const Fp16* p) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}

// The upper halves of sums, 0x7fc0 where x is a NaN.
inline __m256i upper_halves(__m512i sums, Vec x) {
  const __mmask16 is_nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
  const __m512i rounded = _mm512_srli_epi32(sums, 16);
  return _mm512_cvtepi32_epi16(_mm512_mask_mov_epi32(rounded, is_nan, _mm512_set1_epi32(0x7fc0)));
}
// To nearest even.
inline __m256i narrow(Vec x, Bf16) {
  const __m512i bits = _mm512_castps_si512(x);
  const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
  const __m512i half = _mm512_add_epi32(_mm512_set1_epi32(0x7fff), odd);
  return upper_halves(_mm512_add_epi32(bits, half), x);
}
// Stochastically, by numbers below 2^16.
inline __m256i narrow(Vec x, Ints random) {
  return upper_halves(_mm512_add_epi32(_mm512_castps_si512(x), (__m512i)random), x);
}
inline __m256i narrow(Vec x, Fp16) {
  return _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

inline void store(float* p, Vec x) {
  _mm512_storeu_ps(p, x);
}
template <typename T>
void store(T* p, Vec x) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), narrow(x, T{}));
}
inline void store(Bf16* p, Vec x, Ints random) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), narrow(x, random));
}
// Past the caches; p is aligned to 32 bytes.
template <typename T>
void stream(T* p, Vec x) {
  _mm256_stream_si256(reinterpret_cast<__m256i*>(p), narrow(x, T{}));
}
// Orders stream() before what this thread stores later.
inline void end_stream() {
  _mm_sfence();
}

}  // namespace
}  // namespace zeroth::optim::kernel
