// CRC32C by carry-less products of vectors, where the processor has them (VPCLMULQDQ, 2019 and
// later): two to three times as fast as its CRC instruction, which memory can be faster than.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace zeroth {

// Bytes that are folded at a time: what is given has a multiple of these, two at least.
constexpr size_t kCrcFoldBytes = 256;
// Of an address to which is copied.
constexpr size_t kCrcFoldAlignment = 32;

bool can_fold_crc();

// `crc` as the register has it, not inverted, taken on over `bytes`; these are also copied to `to`
// unless it is null, past the caches. Only where can_fold_crc().
uint32_t fold_crc(std::span<const std::byte> bytes, std::byte* to, uint32_t crc);

}  // namespace zeroth
