// CRC32C (Castagnoli), as in iSCSI, ext4 and object stores, for files that other tools can check.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace zeroth {

// Returns the CRC of `bytes` that follow others whose CRC is `before`. Uses the CPU's CRC
// instructions if it has any.
uint32_t crc32c(std::span<const std::byte> bytes, uint32_t before = 0);
uint32_t crc32c(std::string_view text, uint32_t before = 0);

// Copies `from` to `to`, which has the same size and does not overlap, and returns the CRC as
// crc32c() does. Passes over memory once, and bypasses the caches if the CPU can, for a device that
// reads the copy.
uint32_t copy_with_crc32c(std::span<std::byte> to, std::span<const std::byte> from,
                          uint32_t before = 0);

// Returns the CRC of two consecutive parts from the CRC of each and the length of the second. Parts
// can thus be read once and in any order.
uint32_t crc32c_combine(uint32_t first, uint32_t second, uint64_t second_bytes);

// Formats a CRC as "0a1b2c3d", always eight digits, and parses one. Returns nullopt for any other
// text.
std::string format_crc(uint32_t crc);
std::optional<uint32_t> parse_crc(std::string_view text);

// The implementations that crc32c() chooses from.
namespace detail {
uint32_t crc32c_by_table(std::span<const std::byte> bytes, uint32_t before);

bool has_crc_instruction();
// Requires has_crc_instruction().
uint32_t crc32c_by_instruction(std::span<const std::byte> bytes, uint32_t before);

// Bytes that are folded at a time. An input is a multiple of it, and at least two of them.
constexpr size_t kCrcFoldBytes = 256;
// Alignment of the destination of a copy, in bytes.
constexpr size_t kCrcFoldAlignment = 32;
// Returns whether the CPU has carry-less products of vectors (VPCLMULQDQ, 2019 and later). They are
// two to three times as fast as the CRC instruction, which can be slower than memory.
bool can_fold_crc();
// Returns `crc`, in the register's form (not inverted), continued over `bytes`. Also copies them to
// `to`, bypassing the caches, unless it is null. Requires can_fold_crc().
uint32_t fold_crc(std::span<const std::byte> bytes, std::byte* to, uint32_t crc);
}  // namespace detail

}  // namespace zeroth
