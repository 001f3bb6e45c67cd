#include "data/tokenizer/byte_level.h"

#include <doctest/doctest.h>

#include <set>
#include <string>

#include "data/tokenizer/unicode.h"

namespace zeroth::data::byte_level_test {

TEST_CASE("Every byte has a character of its own and comes back from it") {
  std::set<std::string> seen;
  for (int byte = 0; byte < 256; ++byte) {
    const std::string bytes(1, static_cast<char>(byte));
    std::string character;
    append_byte_level(bytes, character);
    CHECK(char_at(character, 0) < 0x144);
    CHECK(utf8_length(character[0]) == character.size());
    CHECK(seen.insert(character).second);
    CHECK(decode_byte_level(character) == bytes);
  }
  CHECK(decode_byte_level("\u0120\u0144") == "\u0120\u0144");
  CHECK(decode_byte_level("\u0120 ") == "\u0120 ");
}

TEST_CASE("Text is written in the alphabet and read back") {
  std::string mapped;
  append_byte_level("a b\n\u00e9", mapped);
  CHECK(mapped == "a\u0120b\u010a\u00c3\u00a9");
  CHECK(decode_byte_level(mapped) == "a b\n\u00e9");
  CHECK(decode_byte_level("\u0120\u20ac") == "\u0120\u20ac");  // not of the alphabet
}

TEST_CASE("A token with a character outside the alphabet is left whole") {
  CHECK(decode_byte_level("\u0120\u20acx") == "\u0120\u20acx");
  CHECK(decode_byte_level("\u0120\U0001f600") == "\u0120\U0001f600");
}

}  // namespace zeroth::data::byte_level_test
