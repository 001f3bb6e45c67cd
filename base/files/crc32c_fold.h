// CRC32C by carry-less products of vectors on CPUs that have them (VPCLMULQDQ, 2019 and later). It
// is two to three times as fast as the CRC instruction, which can be slower than memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace zeroth {

// Bytes that are folded at a time. An input is a multiple of it, and at least two of them.
constexpr size_t kCrcFoldBytes = 256;
// Alignment of the destination of a copy, in bytes.
constexpr size_t kCrcFoldAlignment = 32;

bool can_fold_crc();

// Returns `crc`, in the register's form (not inverted), continued over `bytes`. Also copies them to
// `to`, bypassing the caches, unless it is null. Requires can_fold_crc().
uint32_t fold_crc(std::span<const std::byte> bytes, std::byte* to, uint32_t crc);

}  // namespace zeroth
