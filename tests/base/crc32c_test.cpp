#include "base/files/crc32c.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

namespace zeroth::crc32c_test {
namespace {

using Bytes = std::vector<std::byte>;

Bytes random_bytes(size_t count, uint32_t seed) {
  std::mt19937 random(seed);
  Bytes bytes(count);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  return bytes;
}

// Bit by bit, as the definition has it.
uint32_t by_definition(std::span<const std::byte> bytes) {
  uint32_t crc = 0xffffffff;
  for (const std::byte byte : bytes) {
    crc ^= static_cast<uint32_t>(byte);
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0x82f63b78 : 0);
  }
  return ~crc;
}

}  // namespace

TEST_CASE("CRC32C has the values of RFC 3720, B.4") {
  Bytes rising(32), falling(32);
  for (size_t i = 0; i < 32; ++i) {
    rising[i] = static_cast<std::byte>(i);
    falling[i] = static_cast<std::byte>(31 - i);
  }
  CHECK(crc32c(Bytes(32, std::byte{0})) == 0x8a9136aa);
  CHECK(crc32c(Bytes(32, std::byte{0xff})) == 0x62a8ab43);
  CHECK(crc32c(rising) == 0x46dd794e);
  CHECK(crc32c(falling) == 0x113fdb5c);
  Bytes command(48);  // an iSCSI SCSI Read (10) Command PDU
  for (const auto& [at, value] : std::vector<std::pair<size_t, int>>{{0, 0x01},
                                                                     {1, 0xc0},
                                                                     {16, 0x14},
                                                                     {22, 0x04},
                                                                     {27, 0x14},
                                                                     {31, 0x18},
                                                                     {32, 0x28},
                                                                     {40, 0x02}}) {
    command[at] = static_cast<std::byte>(value);
  }
  CHECK(crc32c(command) == 0xd9963a56);
  CHECK(crc32c("123456789") == 0xe3069283);
  CHECK(crc32c("") == 0);
}

TEST_CASE(
    "table, instructions and copies agree with the definition at every length and alignment") {
  const Bytes bytes = random_bytes(40'000, 1);
  const std::span<const std::byte> all(bytes);
  for (size_t length : {0,   1,   7,    8,    9,    63,     64,     255,    256,    511,   512,
                        513, 768, 1000, 4095, 4096, 12'287, 12'288, 12'289, 24'581, 39'990}) {
    for (size_t begin = 0; begin < 9; ++begin) {
      const auto part = all.subspan(begin, length);
      const uint32_t expected = by_definition(part);
      CHECK(crc32c(part) == expected);
      CHECK(detail::crc32c_by_table(part, 0) == expected);
      if (detail::has_crc_instruction()) CHECK(detail::crc32c_by_instruction(part, 0) == expected);
      Bytes copy(length + 2, std::byte{7});
      CHECK(copy_with_crc32c(std::span(copy).subspan(1, length), part) == expected);
      CHECK(std::equal(part.begin(), part.end(), copy.begin() + 1));
      CHECK(copy.front() == std::byte{7});
      CHECK(copy.back() == std::byte{7});
    }
  }
}

TEST_CASE("a CRC goes on where another one ended, and two are combined") {
  const Bytes bytes = random_bytes(30'000, 2);
  const std::span<const std::byte> all(bytes);
  const uint32_t whole = crc32c(all);
  for (const size_t cut : {0, 1, 5, 4096, 15'000, 29'999, 30'000}) {
    const uint32_t first = crc32c(all.first(cut)), second = crc32c(all.subspan(cut));
    CHECK(crc32c(all.subspan(cut), first) == whole);
    Bytes copy(bytes.size() - cut);
    CHECK(copy_with_crc32c(copy, all.subspan(cut), first) == whole);
    CHECK(detail::crc32c_by_table(all.subspan(cut), first) == whole);
    CHECK(crc32c_combine(first, second, bytes.size() - cut) == whole);
  }
}

TEST_CASE("combining is right for parts that are longer than 2^32 bytes") {
  // Zeros behind a text: twice 2^33 is once 2^34.
  const uint32_t first = crc32c("begin");
  const auto zeros = [](int power) {  // the CRC of 2^power zeros
    uint32_t crc = crc32c(std::string(1, '\0'));
    for (int i = 0; i < power; ++i) crc = crc32c_combine(crc, crc, uint64_t{1} << i);
    return crc;
  };
  CHECK(zeros(12) == crc32c(std::string(4096, '\0')));
  const uint64_t half = uint64_t{1} << 33;
  const uint32_t twice = crc32c_combine(crc32c_combine(first, zeros(33), half), zeros(33), half);
  CHECK(twice == crc32c_combine(first, zeros(34), 2 * half));
}

TEST_CASE("a CRC is written as eight digits, and only those are read") {
  CHECK(format_crc(0x1a2b) == "00001a2b");
  CHECK(parse_crc("00001a2b") == 0x1a2b);
  for (const char* const text :
       {"", "1a2b", "00001A2B", "0x001a2b", "00001a2b0", "+0001a2b", "zzzzzzzz"}) {
    CHECK(!parse_crc(text));
  }
}

}  // namespace zeroth::crc32c_test
