#include "data/tokenizer/byte_level.h"

#include <doctest/doctest.h>

#include <set>

using namespace zeroth::data;

TEST_CASE("Every byte has a character of its own and comes back from it") {
  std::set<char32_t> seen;
  for (int byte = 0; byte < 256; ++byte) {
    const char32_t character = byte_to_char(static_cast<uint8_t>(byte));
    CHECK(character < kByteCharLimit);
    CHECK(seen.insert(character).second);
    CHECK(char_to_byte(character) == byte);
  }
  CHECK(char_to_byte(kByteCharLimit) == -1);
  CHECK(char_to_byte(' ') == -1);
}

TEST_CASE("Text is written in the alphabet and read back") {
  std::string mapped;
  append_byte_level("a b\n\u00e9", mapped);
  CHECK(mapped == "a\u0120b\u010a\u00c3\u00a9");
  std::string bytes;
  for (size_t at = 0; at < mapped.size();) {
    bytes += static_cast<char>(char_to_byte(next_byte_char(mapped, at)));
  }
  CHECK(bytes == "a b\n\u00e9");
  CHECK(decode_byte_level(mapped) == bytes);
  CHECK(decode_byte_level("\u0120\u20ac") == "\u0120\u20ac");  // not of the alphabet
}

TEST_CASE("Characters outside the alphabet are passed over whole") {
  const std::string text = "\u20acx";
  size_t at = 0;
  CHECK(char_to_byte(next_byte_char(text, at)) == -1);
  CHECK(at == 3);
  CHECK(next_byte_char(text, at) == 'x');
}
