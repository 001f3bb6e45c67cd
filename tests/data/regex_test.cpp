#include "data/tokenizer/regex.h"

#include "tests/data/data_test_support.h"

namespace zeroth::data::regex_test {

namespace {

std::vector<std::string> matches(const std::string& pattern, std::string_view text) {
  const Regex regex(pattern);
  Regex::Matches found(regex, text);
  std::vector<std::string> out;
  while (const auto range = found.next()) {
    out.emplace_back(text.substr(range->begin, range->end - range->begin));
  }
  return out;
}

using Strings = std::vector<std::string>;

}  // namespace

TEST_CASE("Classes are Unicode's") {
  CHECK(matches(R"(\p{L}+)", "na\u00efve \u65e5\u672c 1") == Strings{"na\u00efve", "\u65e5\u672c"});
  CHECK(matches(R"(\s)", "a\u00a0b\u0085c\u180ed") == Strings{"\u00a0", "\u0085"});
  CHECK(matches(R"(\d)", "1\u0661\u00bd") == Strings{"1", "\u0661"});
  CHECK(matches("(?i:'s)", "'S '\u017f") == Strings{"'S", "'\u017f"});
}

TEST_CASE("Lines begin and end at every newline") {
  CHECK(matches("^a|a$", "a a\na") == Strings{"a", "a", "a"});
}

TEST_CASE("Empty matches move on by a character and not behind a match") {
  CHECK(matches("x*", "\u00e9xx\u00e9") == Strings{"", "xx", ""});
  CHECK(matches("x*", "") == Strings{""});
}

TEST_CASE("An escaped text matches itself only") {
  const std::string text = R"(a.b*c[d]{e}(f)|^$\+?-#&~)";
  CHECK(matches(escape_regex(text), "x" + text + "axb") == Strings{text});
}

TEST_CASE("A match that needs more stack than JIT has is found all the same") {
  const std::string text(200000, 'a');
  CHECK(matches("(?:a|b)+?c|(?:a|b)+", text).at(0).size() == text.size());
}

TEST_CASE("A broken expression is an Error that shows it") {
  const std::string message = error_of([] { Regex regex("(a"); });
  CHECK(message == "regular expression '(a' is invalid at offset 2 of '(a' (PCRE2 error 114)");
}

TEST_CASE("A search that would try without end is an Error that shows the expression") {
  const std::string text = std::string(100, 'a') + "!";
  CHECK(error_of([&] { matches("(?:a|aa)+$", text); }) ==
        "regular expression '(?:a|aa)+$' failed at byte 0 of a text of 101 bytes: match limit "
        "exceeded");
}

}  // namespace zeroth::data::regex_test
