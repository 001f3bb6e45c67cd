#include "base/files/crc32c.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>

#include "base/machine/cpu.h"
#endif

namespace zeroth {
namespace {

// CRC32C computes with polynomials over GF(2) modulo Castagnoli's. Bits are reflected: the highest
// one is the coefficient of x^0.
constexpr uint32_t kCastagnoli = 0x82f63b78;

constexpr uint32_t multiply_polynomials(uint32_t a, uint32_t b) {
  uint32_t product = 0;
  for (uint32_t bit = uint32_t{1} << 31; bit != 0; bit >>= 1) {
    if ((a & bit) != 0) product ^= b;
    b = (b >> 1) ^ ((b & 1) != 0 ? kCastagnoli : 0);
  }
  return product;
}

// The factors x^(8 * 2^i) that append 1, 2, 4, ... zero bytes to a CRC, one for each bit of a size.
constexpr auto kPowers = [] {
  std::array<uint32_t, 64> powers{};
  powers[0] = uint32_t{1} << 23;
  for (size_t i = 1; i < powers.size(); ++i)
    powers[i] = multiply_polynomials(powers[i - 1], powers[i - 1]);
  return powers;
}();

constexpr uint32_t append_zeros(uint32_t crc, uint64_t bytes) {
  for (size_t i = 0; bytes != 0; ++i, bytes >>= 1) {
    if ((bytes & 1) != 0) crc = multiply_polynomials(kPowers[i], crc);
  }
  return crc;
}

// Eight tables: entry [i] is the CRC of a byte followed by i zeros.
constexpr auto kTables = [] {
  std::array<std::array<uint32_t, 256>, 8> tables{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? kCastagnoli : 0);
    tables[0][byte] = crc;
  }
  for (size_t i = 1; i < tables.size(); ++i) {
    for (size_t byte = 0; byte < 256; ++byte) {
      const uint32_t crc = tables[i - 1][byte];
      tables[i][byte] = (crc >> 8) ^ tables[0][crc & 0xff];
    }
  }
  return tables;
}();

#if defined(__x86_64__)

// Bytes of each of the three CRCs that are computed at a time to hide the latency of the
// instruction.
constexpr size_t kStream = 4096;

// The change of a CRC when kStream zero bytes are appended, by its four bytes.
constexpr auto kSkip = [] {
  std::array<std::array<uint32_t, 256>, 4> skip{};
  const uint32_t power = append_zeros(uint32_t{1} << 31, kStream);
  for (size_t i = 0; i < skip.size(); ++i) {
    for (uint32_t byte = 0; byte < 256; ++byte)
      skip[i][byte] = multiply_polynomials(power, byte << (8 * i));
  }
  return skip;
}();

uint32_t skip_stream(uint32_t crc) {
  return kSkip[0][crc & 0xff] ^ kSkip[1][(crc >> 8) & 0xff] ^ kSkip[2][(crc >> 16) & 0xff] ^
         kSkip[3][crc >> 24];
}

uint64_t word_at(const std::byte* at) {
  uint64_t word = 0;
  std::memcpy(&word, at, sizeof(word));
  return word;
}

[[gnu::target("sse4.2")]] uint32_t by_instruction(std::span<const std::byte> bytes, uint32_t crc) {
  const std::byte* at = bytes.data();
  size_t left = bytes.size();
  for (; left >= 3 * kStream; at += 3 * kStream, left -= 3 * kStream) {
    uint64_t first = crc, second = 0, third = 0;
    for (const std::byte* p = at; p < at + kStream; p += 8) {
      first = _mm_crc32_u64(first, word_at(p));
      second = _mm_crc32_u64(second, word_at(p + kStream));
      third = _mm_crc32_u64(third, word_at(p + 2 * kStream));
    }
    crc = skip_stream(static_cast<uint32_t>(first)) ^ static_cast<uint32_t>(second);
    crc = skip_stream(crc) ^ static_cast<uint32_t>(third);
  }
  uint64_t rest = crc;
  for (; left >= 8; at += 8, left -= 8) rest = _mm_crc32_u64(rest, word_at(at));
  crc = static_cast<uint32_t>(rest);
  for (; left > 0; ++at, --left) crc = _mm_crc32_u8(crc, static_cast<uint8_t>(*at));
  return crc;
}

constexpr uint32_t power_of_x(uint64_t exponent) {
  uint32_t power = uint32_t{1} << 31;
  uint32_t factor = uint32_t{1} << 30;
  for (; exponent != 0; exponent >>= 1) {
    if ((exponent & 1) != 0) power = multiply_polynomials(power, factor);
    factor = multiply_polynomials(factor, factor);
  }
  return power;
}

using Vector = __m256i;
constexpr size_t kVectors = detail::kCrcFoldBytes / sizeof(Vector);

// Factors that advance an accumulator by detail::kCrcFoldBytes: one for each half of 16 bytes, of
// which the first is 64 bits further from the end. The product itself contributes 33 of the
// exponent: 32 because the factor fills half of its 64 bits, and one because the product of
// reflected polynomials is shifted by one bit. (Gopal et al., Fast CRC Computation for Generic
// Polynomials Using PCLMULQDQ, Intel, 2009.)
constexpr uint64_t kFirstHalf = power_of_x(8 * detail::kCrcFoldBytes + 64 - 33);
constexpr uint64_t kSecondHalf = power_of_x(8 * detail::kCrcFoldBytes - 33);

template <bool kCopies>
[[gnu::target("avx2,vpclmulqdq,pclmul,sse4.2")]] uint32_t fold(std::span<const std::byte> bytes,
                                                               std::byte* to, uint32_t crc) {
  const Vector factors = _mm256_set_epi64x(kSecondHalf, kFirstHalf, kSecondHalf, kFirstHalf);
  const std::byte* const from = bytes.data();
  Vector sums[kVectors];
  for (size_t i = 0; i < kVectors; ++i) {
    sums[i] = _mm256_loadu_si256(reinterpret_cast<const Vector*>(from) + i);
    if (kCopies) _mm256_stream_si256(reinterpret_cast<Vector*>(to) + i, sums[i]);
  }
  sums[0] = _mm256_xor_si256(sums[0],
                             _mm256_zextsi128_si256(_mm_cvtsi32_si128(static_cast<int32_t>(crc))));
  for (size_t at = detail::kCrcFoldBytes; at < bytes.size(); at += detail::kCrcFoldBytes) {
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
  std::array<uint64_t, detail::kCrcFoldBytes / 8> rest{};
  std::memcpy(rest.data(), sums, sizeof(rest));
  uint64_t remainder = 0;
  for (const uint64_t word : rest) remainder = _mm_crc32_u64(remainder, word);
  return static_cast<uint32_t>(remainder);
}

#endif

// Returns the CRC continued over as many bytes as can be folded, and removes these from `bytes`.
// Also copies them to `to` unless it is null.
uint32_t fold_prefix(std::span<const std::byte>& bytes, std::byte* to, uint32_t before) {
  const size_t size = bytes.size() / detail::kCrcFoldBytes * detail::kCrcFoldBytes;
  if (size < 2 * detail::kCrcFoldBytes || !detail::can_fold_crc()) return before;
  const uint32_t crc = ~detail::fold_crc(bytes.first(size), to, ~before);
  bytes = bytes.subspan(size);
  return crc;
}

uint32_t crc32c_unfolded(std::span<const std::byte> bytes, uint32_t before) {
  return detail::has_crc_instruction() ? detail::crc32c_by_instruction(bytes, before)
                                       : detail::crc32c_by_table(bytes, before);
}

}  // namespace

namespace detail {

uint32_t crc32c_by_table(std::span<const std::byte> bytes, uint32_t before) {
  uint32_t crc = ~before;
  size_t i = 0;
  for (; i + 8 <= bytes.size(); i += 8) {
    uint32_t next = 0;
    for (size_t j = 0; j < 8; ++j) {
      const auto carried = j < 4 ? (crc >> (8 * j)) & 0xff : 0;
      next ^= kTables[7 - j][static_cast<uint32_t>(bytes[i + j]) ^ carried];
    }
    crc = next;
  }
  for (; i < bytes.size(); ++i)
    crc = (crc >> 8) ^ kTables[0][(crc ^ static_cast<uint32_t>(bytes[i])) & 0xff];
  return ~crc;
}

#if defined(__x86_64__)

uint32_t crc32c_by_instruction(std::span<const std::byte> bytes, uint32_t before) {
  return ~by_instruction(bytes, ~before);
}
bool has_crc_instruction() {
  static const bool has = __builtin_cpu_supports("sse4.2") != 0;
  return has;
}

bool can_fold_crc() {
  static const bool can = cpu_isa() >= CpuIsa::kAvx2 && __builtin_cpu_supports("vpclmulqdq") != 0 &&
                          __builtin_cpu_supports("pclmul") != 0;
  return can;
}

uint32_t fold_crc(std::span<const std::byte> bytes, std::byte* to, uint32_t crc) {
  return to == nullptr ? fold<false>(bytes, to, crc) : fold<true>(bytes, to, crc);
}

#else

uint32_t crc32c_by_instruction(std::span<const std::byte> bytes, uint32_t before) {
  return crc32c_by_table(bytes, before);
}
bool has_crc_instruction() {
  return false;
}

bool can_fold_crc() {
  return false;
}

uint32_t fold_crc(std::span<const std::byte> /*bytes*/, std::byte* /*to*/, uint32_t crc) {
  return crc;
}

#endif

}  // namespace detail

uint32_t crc32c(std::span<const std::byte> bytes, uint32_t before) {
  const uint32_t crc = fold_prefix(bytes, nullptr, before);
  return crc32c_unfolded(bytes, crc);
}

uint32_t copy_with_crc32c(std::span<std::byte> to, std::span<const std::byte> from,
                          uint32_t before) {
  const auto copy_some = [&](size_t size, uint32_t crc) {
    crc = crc32c_unfolded(from.first(size), crc);
    if (size > 0) std::memcpy(to.data(), from.data(), size);
    from = from.subspan(size);
    to = to.subspan(size);
    return crc;
  };
  const size_t unaligned = -reinterpret_cast<uintptr_t>(to.data()) % detail::kCrcFoldAlignment;
  uint32_t crc = copy_some(std::min(unaligned, from.size()), before);
  crc = fold_prefix(from, to.data(), crc);
  to = to.last(from.size());
  // Processes one part at a time, so that it is copied while it is in the cache.
  constexpr size_t kPart = size_t{24} << 10;
  while (!from.empty()) crc = copy_some(std::min(kPart, from.size()), crc);
  return crc;
}

uint32_t crc32c(std::string_view text, uint32_t before) {
  return crc32c(std::as_bytes(std::span(text)), before);
}

uint32_t crc32c_combine(uint32_t first, uint32_t second, uint64_t second_bytes) {
  return append_zeros(first, second_bytes) ^ second;
}

std::string format_crc(uint32_t crc) {
  return fmt::format("{:08x}", crc);
}

std::optional<uint32_t> parse_crc(std::string_view text) {
  uint32_t crc = 0;
  std::from_chars(text.data(), text.data() + text.size(), crc, 16);
  return format_crc(crc) == text ? std::optional(crc) : std::nullopt;
}

}  // namespace zeroth
