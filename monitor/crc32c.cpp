#include "monitor/crc32c.h"

#include <array>

namespace zeroth::monitor {
namespace {

constexpr uint32_t kPolynomial = 0x82f63b78;  // bits reversed

constexpr std::array<uint32_t, 256> make_table() {
  std::array<uint32_t, 256> table{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t rest = byte;
    for (int bit = 0; bit < 8; ++bit) rest = (rest >> 1) ^ ((rest & 1) != 0 ? kPolynomial : 0);
    table[byte] = rest;
  }
  return table;
}

constexpr std::array<uint32_t, 256> kTable = make_table();

}  // namespace

uint32_t crc32c(std::string_view bytes) {
  uint32_t rest = ~0U;
  for (const char byte : bytes) {
    rest = kTable[(rest ^ static_cast<uint8_t>(byte)) & 0xff] ^ (rest >> 8);
  }
  return ~rest;
}

}  // namespace zeroth::monitor
