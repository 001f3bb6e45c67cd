#include "data/tokenizer/normalizer.h"

#include "tests/data/data_test_support.h"

namespace zeroth::data::replacement_test {
using nlohmann::json;
using zeroth::JsonView;

namespace {

std::string replaced(const json& pattern, const char* content, std::string_view text) {
  const json part = {{"pattern", pattern}, {"content", content}};
  return Replacement(JsonView(part, "part")).run(text, 1000);
}

}  // namespace

TEST_CASE("Texts and expressions are replaced from left to right") {
  CHECK(replaced({{"String", "aa"}}, "b", "aaaaa") == "bba");
  CHECK(replaced({{"String", "."}}, "", "a.b.") == "ab");
  CHECK(replaced({{"Regex", "[ab]+"}}, "\\1", "xabay") == "x\\1y");
  CHECK(replaced({{"String", "z"}}, "b", "abc") == "abc");
  CHECK(replaced({{"Regex", "x*"}}, "-", "axb") == "-a-b-");
  CHECK(replaced({{"Regex", "x*"}}, "-", "") == "");
}

TEST_CASE("A result that grows without measure is not finished") {
  const json part = {{"pattern", {{"String", "a"}}}, {"content", std::string(1000, 'b')}};
  const std::string text(100'000, 'a');
  CHECK(Replacement(JsonView(part)).run(text, 5000).size() < 200'000);
  check_contains(error_of([] { require_growth("decoder", 1, 5000); }),
                 "decoder: a text of 1 bytes grows beyond 4160");
}

TEST_CASE("A pattern that is neither text nor expression is refused by its key") {
  check_contains(error_of([] { replaced(json::object(), "", ""); }),
                 "part.pattern.String is missing");
}

}  // namespace zeroth::data::replacement_test
