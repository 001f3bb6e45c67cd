#include "data/tokenizer/unicode.h"

#include <doctest/doctest.h>
#include <utf8proc.h>

#include <cstdlib>
#include <ctime>
#include <vector>

namespace zeroth::data::unicode_test {

namespace {

std::string nfc(std::string_view text) {
  return to_normal_form(text, NormalForm::kNfc);
}

}  // namespace

TEST_CASE("NFC composes and orders marks, and keeps what is composed") {
  CHECK(nfc("plain") == "plain");
  CHECK(nfc("cafe\u0301") == "caf\u00e9");
  CHECK(nfc("\u212b") == "\u00c5");
  CHECK(nfc("s\u0323\u0307") == "\u1e69");
  CHECK(nfc("s\u0307\u0323") == "\u1e69");
  CHECK(nfc("\u1112\u1161\u11ab") == "\ud55c");
  CHECK(nfc("\ufb01") == "\ufb01");
  CHECK(nfc(std::string("e\0\u0301", 4)) == std::string("e\0\u0301", 4));
}

TEST_CASE("Marks of any number and order are normalised in linear time") {
  std::string marks = "e";
  for (int i = 0; i < 200'000; ++i) marks += i % 2 == 0 ? "\u0301" : "\u0323";
  const std::clock_t start = std::clock();
  const std::string normal = nfc(marks);
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
    REQUIRE(nfc(text) == reinterpret_cast<const char*>(wanted));
    std::free(wanted);
  }
}

TEST_CASE("The other forms decompose, and those of compatibility make plain letters") {
  CHECK(to_normal_form("caf\u00e9", NormalForm::kNfd) == "cafe\u0301");
  CHECK(to_normal_form("\ud55c", NormalForm::kNfd) == "\u1112\u1161\u11ab");
  CHECK(to_normal_form("\ufb01 x\u00b2", NormalForm::kNfd) == "\ufb01 x\u00b2");
  CHECK(to_normal_form("\ufb01 x\u00b2 \u00e9", NormalForm::kNfkd) == "fi x2 e\u0301");
  CHECK(to_normal_form("\ufb01 x\u00b2 e\u0301", NormalForm::kNfkc) == "fi x2 \u00e9");
  CHECK(to_normal_form("\ufdfa", NormalForm::kNfkc).size() > 30);  // 18 characters
  CHECK(find_normal_form("NFKD") == NormalForm::kNfkd);
  CHECK(!find_normal_form("Nmt"));
}

TEST_CASE("Letters become small, one by one") {
  CHECK(to_lower("ABC \u00c9\u03a3\u01c5 \u4e2d") == "abc \u00e9\u03c3\u01c6 \u4e2d");
  CHECK(to_lower("\u0130") == "i\u0307");
}

TEST_CASE("White space and letters of words are told apart") {
  for (const char32_t c : U"\t\n \u0085\u00a0\u2028\u3000") CHECK((c == 0 || is_space(c)));
  for (const char32_t c : {U'a', U'\u200b', U'\u180e', U'\ufeff'}) CHECK(!is_space(c));
  for (const char32_t c : U"a\u00e9_7\u0301\u2167\u200d\u24b6") CHECK((c == 0 || is_word(c)));
  for (const char32_t c : {U'-', U' ', U'\u00bd', U'\u20ac'}) CHECK(!is_word(c));
}

}  // namespace zeroth::data::unicode_test
