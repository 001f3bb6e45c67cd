#include "data/tokenizer/byte_level.h"

#include <array>
#include <cstdint>

#include "data/tokenizer/unicode.h"

namespace zeroth::data {
namespace {

constexpr char32_t kByteCharLimit = 0x144;  // all characters of the alphabet are below it

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

void append_byte_level(std::string_view bytes, std::string& out) {
  for (const char byte : bytes) {
    const char32_t character = kAlphabet.to_char[static_cast<uint8_t>(byte)];
    if (character < 0x80) {
      out.push_back(static_cast<char>(character));
    } else {
      append_char(character, out);
    }
  }
}

std::string decode_byte_level(std::string_view token) {
  std::string bytes;
  for (size_t at = 0; at < token.size(); at += utf8_length(token[at])) {
    const char32_t character = char_at(token, at);
    const int byte = character < kByteCharLimit ? kAlphabet.to_byte[character] : -1;
    if (byte < 0) return std::string(token);
    bytes.push_back(static_cast<char>(byte));
  }
  return bytes;
}

}  // namespace zeroth::data
