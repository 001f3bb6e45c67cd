#include "base/files/crc32c_fold.h"

#include "base/files/crc32c_polynomial.h"

#if defined(__x86_64__)
#include <immintrin.h>

#include <array>
#include <cstring>

#include "base/machine/cpu.h"

#define ZEROTH_FOLDS [[gnu::target("avx2,vpclmulqdq,pclmul,sse4.2")]]
#endif

namespace zeroth {

#if defined(__x86_64__)
namespace {

using Vector = __m256i;
constexpr size_t kVectors = kCrcFoldBytes / sizeof(Vector);

// Factors that advance an accumulator by kCrcFoldBytes: one for each half of 16 bytes, of which the
// first is 64 bits further from the end. The product itself contributes 33 of the exponent: 32
// because the factor fills half of its 64 bits, and one because the product of reflected
// polynomials is shifted by one bit. (Gopal et al., Fast CRC Computation for Generic Polynomials
// Using PCLMULQDQ, Intel, 2009.)
constexpr uint64_t kFirstHalf = power_of_x(8 * kCrcFoldBytes + 64 - 33);
constexpr uint64_t kSecondHalf = power_of_x(8 * kCrcFoldBytes - 33);

template <bool kCopies>
ZEROTH_FOLDS uint32_t fold(std::span<const std::byte> bytes, std::byte* to, uint32_t crc) {
  const Vector factors = _mm256_set_epi64x(kSecondHalf, kFirstHalf, kSecondHalf, kFirstHalf);
  const std::byte* const from = bytes.data();
  Vector sums[kVectors];
  for (size_t i = 0; i < kVectors; ++i) {
    sums[i] = _mm256_loadu_si256(reinterpret_cast<const Vector*>(from) + i);
    if (kCopies) _mm256_stream_si256(reinterpret_cast<Vector*>(to) + i, sums[i]);
  }
  sums[0] = _mm256_xor_si256(sums[0],
                             _mm256_zextsi128_si256(_mm_cvtsi32_si128(static_cast<int32_t>(crc))));
  for (size_t at = kCrcFoldBytes; at < bytes.size(); at += kCrcFoldBytes) {
    for (size_t i = 0; i < kVectors; ++i) {
      const Vector next = _mm256_loadu_si256(reinterpret_cast<const Vector*>(from + at) + i);
      if (kCopies) _mm256_stream_si256(reinterpret_cast<Vector*>(to + at) + i, next);
      const Vector first = _mm256_clmulepi64_epi128(sums[i], factors, 0x00);
      const Vector second = _mm256_clmulepi64_epi128(sums[i], factors, 0x11);
      sums[i] = _mm256_xor_si256(_mm256_xor_si256(first, second), next);
    }
  }
  if (kCopies) _mm_sfence();
  // The accumulators have the same remainder as all bytes before.
  std::array<uint64_t, kCrcFoldBytes / 8> rest{};
  std::memcpy(rest.data(), sums, sizeof(rest));
  uint64_t remainder = 0;
  for (const uint64_t word : rest) remainder = _mm_crc32_u64(remainder, word);
  return static_cast<uint32_t>(remainder);
}

}  // namespace

bool can_fold_crc() {
  static const bool can = cpu_isa() >= CpuIsa::kAvx2 && __builtin_cpu_supports("vpclmulqdq") != 0 &&
                          __builtin_cpu_supports("pclmul") != 0;
  return can;
}

uint32_t fold_crc(std::span<const std::byte> bytes, std::byte* to, uint32_t crc) {
  return to == nullptr ? fold<false>(bytes, to, crc) : fold<true>(bytes, to, crc);
}

#else

bool can_fold_crc() {
  return false;
}

uint32_t fold_crc(std::span<const std::byte> /*bytes*/, std::byte* /*to*/, uint32_t crc) {
  return crc;
}

#endif

}  // namespace zeroth
