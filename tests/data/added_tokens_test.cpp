#include "data/tokenizer/added_tokens.h"

#include "tests/data/data_test_support.h"

namespace zeroth::data::added_tokens_test {

namespace {

// Tokens as "#id", text as it is, joined by '|'.
std::string split(const std::vector<AddedToken>& tokens, std::string_view input) {
  std::string out;
  const AddedTokenSplitter splitter(tokens);
  splitter.split(
      input, [&](int32_t id, TextRange) { out += fmt::format("#{}|", id); },
      [&](TextRange range) {
        out += fmt::format("{}|", input.substr(range.begin, range.end - range.begin));
      });
  return out;
}

}  // namespace

TEST_CASE("Text without added tokens stays whole") {
  CHECK(split({}, "some text") == "some text|");
  CHECK(split({{.id = 1, .content = "<x>"}}, "") == "");
}

TEST_CASE("The longest token wins at each place") {
  const std::vector<AddedToken> tokens = {
      {.id = 1, .content = "<a>"}, {.id = 2, .content = "<a><b>"}, {.id = 3, .content = "<b>"}};
  CHECK(split(tokens, "x<a><b><a>y<b>") == "x|#2|#1|y|#3|");
}

TEST_CASE("White space goes to a token that strips it, once") {
  const std::vector<AddedToken> tokens = {{.id = 1, .content = "<l>", .lstrip = true},
                                          {.id = 2, .content = "<r>", .rstrip = true}};
  CHECK(split(tokens, "a \u00a0<l> b") == "a|#1| b|");
  CHECK(split(tokens, "a <r>\n\t b") == "a |#2|b|");
  CHECK(split(tokens, "<r>  <l>") == "#2|#1|");
}

// As `tokenizers` has it.
TEST_CASE("A token of white space that strips is gone where one before it has taken it") {
  CHECK(split({{.id = 1, .content = "  ", .lstrip = true, .rstrip = true}}, "a      b") ==
        "a|#1|b|");
  CHECK(split({{.id = 1, .content = "  ", .rstrip = true}}, "a    b") == "a|#1|#1|b|");
}

TEST_CASE("A single word is not taken out of a longer one") {
  const std::vector<AddedToken> tokens = {{.id = 1, .content = "cat", .single_word = true}};
  CHECK(split(tokens, "cat cats concat \u00e9cat cat_ -cat-") ==
        "#1| cats concat \u00e9cat cat_ -|#1|-|");
}

TEST_CASE("The list in tokenizer.json is read with its defaults") {
  const auto tokens = parse_added_tokens(nlohmann::json::parse(
      R"([{"id": 7, "content": "<s>", "special": true}, {"id": 8, "content": "x", "lstrip": true}])"));
  REQUIRE(tokens.size() == 2);
  CHECK(tokens[0].id == 7);
  CHECK(!tokens[0].normalized);
  CHECK(tokens[1].lstrip);
  CHECK(tokens[1].normalized);
  CHECK(parse_added_tokens(nullptr).empty());
}

TEST_CASE("Of equal tokens the first counts, and an empty one is none") {
  CHECK(split({{.id = 1, .content = "a"}, {.id = 2, .content = "a"}, {.id = 3, .content = ""}},
              "ab") == "#1|b|");
}

TEST_CASE("Tokens that begin alike are told apart, also at the end of the text") {
  const std::vector<AddedToken> tokens = {{.id = 1, .content = "<a>"},
                                          {.id = 2, .content = "<a>\u00e9x"},
                                          {.id = 3, .content = "<a>\u00e9y"},
                                          {.id = 4, .content = "<"}};
  CHECK(split(tokens, "<a>\u00e9y<a>\u00e9z<b<a>") == "#3|#1|\u00e9z|#4|b|#1|");
  CHECK(split(tokens, "<a>\u00e9") == "#1|\u00e9|");
}

TEST_CASE("Many added tokens are found in linear time") {
  std::vector<AddedToken> tokens;
  for (int i = 0; i < 60'000; ++i) {
    tokens.push_back({.id = i, .content = fmt::format("<|reserved_special_token_{}|>", i)});
  }
  std::string text;
  for (int i = 0; i < 10'000; ++i) text += "<|reserved_special_token_";
  CHECK(seconds_of([&] { CHECK(split(tokens, text) == text + "|"); }) < 2);
}

TEST_CASE("An entry that is none is an Error with its key") {
  const auto error = [](const char* text) {
    return error_of([&] { parse_added_tokens(nlohmann::json::parse(text)); });
  };
  check_contains(error(R"([{"id": 1, "content": "a"}, {"content": "a"}])"),
                 "added_tokens[1].id is missing");
  check_contains(error(R"([{"id": 100000000, "content": "a"}])"),
                 "added_tokens[0].id is 100000000, expected an integer in 0..4194303");
  check_contains(error(R"([{"id": -1, "content": "a"}])"), "added_tokens[0].id is -1");
  check_contains(error(R"([{"id": 1, "content": "a", "lstrip": 1}])"),
                 "lstrip is 1, expected true");
  check_contains(error("5"), "added_tokens is 5, expected a list");
}

}  // namespace zeroth::data::added_tokens_test
