#include "data/tokenizer/byte_level.h"

#include <algorithm>
#include <array>

#include "data/tokenizer/unicode.h"

namespace zeroth::data {
namespace {

struct ByteAlphabet {
  std::array<char32_t, 256> to_char{};
  std::array<int16_t, kByteCharLimit> to_byte{};
};

// Returns the alphabet: printable Latin-1 characters represent themselves, the other bytes follow
// from U+0100 on.
constexpr ByteAlphabet make_alphabet() {
  ByteAlphabet alphabet;
  for (auto& byte : alphabet.to_byte) byte = -1;
  char32_t next = 0x100;
  for (char32_t byte = 0; byte < 256; ++byte) {
    const bool printable = (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte != 0xAD);
    const char32_t character = printable ? byte : next++;
    alphabet.to_char[byte] = character;
    alphabet.to_byte[character] = static_cast<int16_t>(byte);
  }
  return alphabet;
}

constexpr ByteAlphabet kAlphabet = make_alphabet();

}  // namespace

char32_t byte_to_char(uint8_t byte) {
  return kAlphabet.to_char[byte];
}

int char_to_byte(char32_t character) {
  return character < kByteCharLimit ? kAlphabet.to_byte[character] : -1;
}

void append_byte_level(std::string_view bytes, std::string& out) {
  for (const char byte : bytes) {
    const char32_t character = kAlphabet.to_char[static_cast<uint8_t>(byte)];
    if (character < 0x80) {
      out.push_back(static_cast<char>(character));
    } else {
      out.push_back(static_cast<char>(0xC0 | (character >> 6)));
      out.push_back(static_cast<char>(0x80 | (character & 0x3F)));
    }
  }
}

std::string decode_byte_level(std::string_view token) {
  std::string bytes;
  for (size_t at = 0; at < token.size();) {
    const int byte = char_to_byte(next_byte_char(token, at));
    if (byte < 0) return std::string(token);
    bytes.push_back(static_cast<char>(byte));
  }
  return bytes;
}

char32_t next_byte_char(std::string_view text, size_t& at) {
  const auto first = static_cast<uint8_t>(text[at]);
  const size_t length = std::min(utf8_length(text[at]), text.size() - at);
  char32_t character = kByteCharLimit;
  if (length == 1) character = first;
  if (length == 2) character = ((first & 0x1FU) << 6) | (static_cast<uint8_t>(text[at + 1]) & 0x3F);
  at += length;
  return character;
}

}  // namespace zeroth::data
