// Loops of NF4. Included by kernels.cpp alone.
#pragma once

#include "model/kernels/cpu/vector.h"
#include "model/kernels/nf4_values.h"

namespace zeroth::model::cpu {
namespace {

// Returns the numbers of kLanes codes. Of two codes in a byte the first one is the upper half.
#if defined(__AVX512F__)
ZEROTH_INLINE Vec nf4_values(const uint8_t* codes) {
  const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(codes));
  const __m512i twice = _mm512_cvtepu8_epi32(_mm_unpacklo_epi8(bytes, bytes));
  const __m512i shift = _mm512_set1_epi64(4);  // 4, 0, 4, 0, ...
  // The permutation reads the lowest four bits of an index.
  const __m512i index = _mm512_srlv_epi32(twice, shift);
  return reinterpret_cast<Vec>(_mm512_permutexvar_ps(index, _mm512_loadu_ps(kNf4Values)));
}
#elif defined(__AVX2__)
ZEROTH_INLINE Vec nf4_values(const uint8_t* codes) {
  int32_t four;
  std::memcpy(&four, codes, sizeof(four));
  const __m128i bytes = _mm_cvtsi32_si128(four);
  const __m256i twice = _mm256_cvtepu8_epi32(_mm_unpacklo_epi8(bytes, bytes));
  const __m256i index = _mm256_srlv_epi32(twice, _mm256_set1_epi64x(4));  // 4, 0, 4, 0, ...
  // The permutations read the lowest three bits of an index; the fourth selects the table.
  const __m256 low = _mm256_permutevar8x32_ps(_mm256_loadu_ps(kNf4Values), index);
  const __m256 high = _mm256_permutevar8x32_ps(_mm256_loadu_ps(kNf4Values + 8), index);
  const __m256i upper = _mm256_slli_epi32(index, 28);
  return reinterpret_cast<Vec>(_mm256_blendv_ps(low, high, _mm256_castsi256_ps(upper)));
}
#else
ZEROTH_INLINE Vec nf4_values(const uint8_t* codes) {
  Vec values = {};
  for (int64_t lane = 0; lane < kLanes; ++lane) {
    values[lane] = kNf4Values[codes[lane / 2] >> (lane % 2 == 0 ? 4 : 0) & 15];
  }
  return values;
}
#endif

template <typename T>
void dequantize_nf4(const uint8_t* codes, const float* scales, T* out, int64_t count) {
  for (int64_t begin = 0; begin < count; begin += kNf4Block) {
    const Vec scale = spread(scales[begin / kNf4Block]);
    int64_t i = begin;
    const int64_t end = begin + kNf4Block < count ? begin + kNf4Block : count;
    for (; i + kLanes <= end; i += kLanes) store(out + i, nf4_values(codes + i / 2) * scale);
    if (i == end) continue;
    uint8_t rest[kLanes] = {};
    std::memcpy(rest, codes + i / 2, static_cast<size_t>(end - i + 1) / 2);
    PartialVector{i, end - i}.store(out, nf4_values(rest) * scale);
  }
}

inline float max_magnitude(const float* x, int64_t count) {
  Vec maximum = {};
  for_each_vector(count, [&](const auto& at) {
    const Vec values = at.load(x);
    maximum = lane_max(values < 0.0F ? -values : values, maximum);
  });
  return horizontal_max(maximum);
}

inline void quantize_nf4(const float* x, int64_t count, uint8_t* codes, float* absmax) {
  for (int64_t begin = 0; begin < count; begin += kNf4Block) {
    const int64_t size = begin + kNf4Block < count ? kNf4Block : count - begin;
    const float largest = max_magnitude(x + begin, size);
    absmax[begin / kNf4Block] = largest;
    const float inverse = 1 / (largest < kNf4MinAbsmax ? kNf4MinAbsmax : largest);
    Ints code[kNf4Block / kLanes] = {};
    // Lanes behind the last element are 0: so is what fills the last byte of an odd number.
    for_each_vector(size, [&](const auto& at) {
      const Vec scaled = at.load(x + begin) * inverse;
      Ints below = {};
      for (int i = 0; i < 15; ++i) below -= scaled > nf4_midpoint(i);
      code[at.index / kLanes] = below;
    });
    int32_t flat[kNf4Block];
    std::memcpy(flat, code, sizeof(flat));
    for (int64_t i = 0; i < size; i += 2) {
      codes[(begin + i) / 2] = static_cast<uint8_t>(flat[i] << 4 | flat[i + 1]);
    }
  }
}

}  // namespace
}  // namespace zeroth::model::cpu
