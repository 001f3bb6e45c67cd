#include "data/utf8.h"

#include <doctest/doctest.h>
#include <utf8proc.h>

#include <cstdlib>
#include <ctime>
#include <vector>

using namespace zeroth::data;

TEST_CASE("Valid text of every length of character passes") {
  CHECK(!find_invalid_utf8(""));
  CHECK(!find_invalid_utf8("a\u00e9\u20ac\U0001f600\U0010ffff"));
}

TEST_CASE("The offset of the first invalid byte is found") {
  CHECK(find_invalid_utf8("ab\xff") == 2);
  CHECK(find_invalid_utf8("\xc3") == 0);               // cut short
  CHECK(find_invalid_utf8("\u00e9\xc0\xaf") == 2);     // overlong
  CHECK(find_invalid_utf8("a\xed\xa0\x80") == 1);      // surrogate
  CHECK(find_invalid_utf8("a\xf4\x90\x80\x80") == 1);  // above U+10FFFF
  CHECK(find_invalid_utf8("\x80") == 0);
}

TEST_CASE("NFC composes and orders marks, and keeps what is composed") {
  CHECK(to_nfc("plain") == "plain");
  CHECK(to_nfc("cafe\u0301") == "caf\u00e9");
  CHECK(to_nfc("\u212b") == "\u00c5");
  CHECK(to_nfc("s\u0323\u0307") == "\u1e69");
  CHECK(to_nfc("s\u0307\u0323") == "\u1e69");
  CHECK(to_nfc("\u1112\u1161\u11ab") == "\ud55c");
  CHECK(to_nfc("\ufb01") == "\ufb01");
  CHECK(to_nfc(std::string("e\0\u0301", 4)) == std::string("e\0\u0301", 4));
}

TEST_CASE("The first byte tells a character's length") {
  CHECK(utf8_length('a') == 1);
  CHECK(utf8_length("\u00e9"[0]) == 2);
  CHECK(utf8_length("\u20ac"[0]) == 3);
  CHECK(utf8_length("\U0001f600"[0]) == 4);
}

TEST_CASE("Marks of any number and order are normalised in linear time") {
  std::string marks = "e";
  for (int i = 0; i < 200'000; ++i) marks += i % 2 == 0 ? "\u0301" : "\u0323";
  const std::clock_t start = std::clock();
  const std::string normal = to_nfc(marks);
  CHECK(std::clock() - start < 2 * CLOCKS_PER_SEC);
  CHECK(normal.starts_with("\u1eb9\u0323\u0323"));
  CHECK(normal.ends_with("\u0301\u0301"));
  CHECK(normal.size() == marks.size() + 3 - 1 - 2);
}

TEST_CASE("Every short text is normalised as utf8proc does it") {
  const std::vector<std::string> letters = {"a",      "e",      "\u0301", "\u0323", "\u0327",
                                            "\u0f71", "\u1112", "\u1161", "\u11ab", "\uac00",
                                            "\u00e9", "\u1e69", "\u212b", "\u0344", "\ufb1d"};
  const size_t count = letters.size();
  for (size_t i = 0; i < count * count * count * count; ++i) {
    std::string text;
    for (size_t rest = i, k = 0; k < 4; ++k, rest /= count) text += letters[rest % count];
    auto* const wanted = utf8proc_NFC(reinterpret_cast<const utf8proc_uint8_t*>(text.c_str()));
    REQUIRE(to_nfc(text) == reinterpret_cast<const char*>(wanted));
    std::free(wanted);
  }
}
