#include "data/tokenizer/unicode.h"

#include <doctest/doctest.h>

namespace zeroth::data::utf8_test {

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

TEST_CASE("A byte order mark is left out at the beginning of a text only, and once") {
  CHECK(without_byte_order_mark("\xef\xbb\xbf") == "");
  CHECK(without_byte_order_mark("\xef\xbb\xbf\xef\xbb\xbf") == "\xef\xbb\xbf");
  CHECK(without_byte_order_mark("a\xef\xbb\xbf") == "a\xef\xbb\xbf");
  CHECK(without_byte_order_mark("\xef\xbb") == "\xef\xbb");
}

TEST_CASE("The first byte tells a character's length") {
  CHECK(utf8_length('a') == 1);
  CHECK(utf8_length("\u00e9"[0]) == 2);
  CHECK(utf8_length("\u20ac"[0]) == 3);
  CHECK(utf8_length("\U0001f600"[0]) == 4);
}

TEST_CASE("Characters are read from the front and from behind") {
  const std::string text = "a\u00e9\u20ac\U0001f600";
  std::u32string forwards, backwards;
  for (size_t at = 0; at < text.size(); at += utf8_length(text[at])) forwards += char_at(text, at);
  for (size_t at = text.size(); at > 0;) {
    at = previous_char(text, at);
    backwards = char_at(text, at) + backwards;
  }
  CHECK(forwards == U"a\u00e9\u20ac\U0001f600");
  CHECK(backwards == forwards);
  std::string again;
  for (const char32_t character : forwards) append_char(character, again);
  CHECK(again == text);
}

// The table "U+FFFD for Non-Characters" and those around it of Unicode's chapter 3.9.
TEST_CASE("Bytes that are no text become one U+FFFD for each character that was begun") {
  CHECK(to_valid_utf8("plain \u00e9") == "plain \u00e9");
  CHECK(to_valid_utf8("\xc0\xaf\xe0\x80\xbf\xf0\x81\x82"
                      "A") == "\ufffd\ufffd\ufffd\ufffd\ufffd\ufffd\ufffd\ufffdA");
  CHECK(to_valid_utf8("\xed\xa0\x80\xed\xbf\xbf\xed\xaf"
                      "A") == "\ufffd\ufffd\ufffd\ufffd\ufffd\ufffd\ufffd\ufffdA");
  CHECK(to_valid_utf8("\xf4\x91\x92\x93\xff"
                      "A\x80\xbf"
                      "B") == "\ufffd\ufffd\ufffd\ufffd\ufffdA\ufffd\ufffdB");
  CHECK(to_valid_utf8("\xe1\x80\xe2\xf0\x91\x92\xf1\xbf"
                      "A") == "\ufffd\ufffd\ufffd\ufffdA");
  CHECK(to_valid_utf8("\xe2\x82") == "\ufffd");
}

}  // namespace zeroth::data::utf8_test
