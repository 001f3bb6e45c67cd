// CRC32C (Castagnoli), as iSCSI, ext4 and object stores have it: of files that others can check.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace zeroth {

// Of `bytes` behind others whose CRC is `before`. By the processor's instructions where it has any.
uint32_t crc32c(std::span<const std::byte> bytes, uint32_t before = 0);
uint32_t crc32c(std::string_view text, uint32_t before = 0);

// The same of `from`, which is copied to `to`, of its size and elsewhere: in one pass over memory,
// and past the caches where the processor can, for a device that reads the copy.
uint32_t copy_with_crc32c(std::span<std::byte> to, std::span<const std::byte> from,
                          uint32_t before = 0);

// Of two parts that stand behind each other, from the CRC of each and the length of the second: so
// that parts are read once, in any order.
uint32_t crc32c_combine(uint32_t first, uint32_t second, uint64_t second_bytes);

// "0a1b2c3d", always eight digits, and back; nothing where the text is something else.
std::string format_crc(uint32_t crc);
std::optional<uint32_t> parse_crc(std::string_view text);

namespace detail {
// What crc32c() chooses from besides crc32c_fold.h; the second one only where
// has_crc_instruction().
uint32_t crc32c_by_table(std::span<const std::byte> bytes, uint32_t before);
uint32_t crc32c_by_instruction(std::span<const std::byte> bytes, uint32_t before);
bool has_crc_instruction();
}  // namespace detail

}  // namespace zeroth
