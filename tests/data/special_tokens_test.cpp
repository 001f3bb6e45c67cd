#include "data/samples/special_tokens.h"

#include "tests/data/data_test_support.h"

namespace zeroth::data::special_tokens_test {

namespace {

using Ids = std::vector<int32_t>;

Ids add_special_tokens(SpecialTokens& ends, const Tokenizer& tokenizer, const std::string& text,
                       size_t begin) {
  size_t before = 0;
  const Ids ids = ends.add_special_tokens(tokenizer.encode(text), 0, text, before);
  CHECK(before == begin);
  return ids;
}

Ids operator+(Ids left, const Ids& right) {
  left.insert(left.end(), right.begin(), right.end());
  return left;
}

}  // namespace

TEST_CASE("double_bos: a text has one begin token and one end token, its own or ours") {
  const Tokenizer tokenizer = Tokenizer::load(fixture("llama3"));
  const std::string begin(tokenizer.id_to_token(0)), end(tokenizer.id_to_token(1));
  const Ids fox = tokenizer.encode("the fox"), expected = Ids{0} + fox + Ids{1};
  SpecialTokens ends(tokenizer, 1);
  CHECK(add_special_tokens(ends, tokenizer, "the fox", 1) == expected);
  CHECK(ends.own_special_tokens().empty());
  CHECK(add_special_tokens(ends, tokenizer, begin + "the fox", 0) == expected);
  CHECK(add_special_tokens(ends, tokenizer, "the fox" + end, 1) == expected);
  CHECK(add_special_tokens(ends, tokenizer, begin + "the fox" + end, 0) == expected);
  CHECK(ends.own_special_tokens() == "of 4 texts, 2 begin with the begin token " + begin +
                                         " and 2 end with the end token " + end +
                                         ": no second one is added to these");
}

TEST_CASE("double_bos: white space after the end token belongs to the text") {
  const Tokenizer tokenizer = Tokenizer::load(fixture("llama3"));
  SpecialTokens ends(tokenizer, 1);
  const std::string text = "the fox" + std::string(tokenizer.id_to_token(1)) + "\n";
  CHECK(add_special_tokens(ends, tokenizer, text, 1) == Ids{0} + tokenizer.encode(text));
  // An end token inside of a text ends nothing.
  const std::string inside = text + "jumps";
  CHECK(add_special_tokens(ends, tokenizer, inside, 1) ==
        Ids{0} + tokenizer.encode(inside) + Ids{1});
}

TEST_CASE("double_bos: both tokens may come from the tokenizer's template") {
  const Tokenizer tokenizer = Tokenizer::load(fixture("prefix_space"));  // <s> $A </s>
  const std::string begin(tokenizer.id_to_token(0)), end(tokenizer.id_to_token(1));
  SpecialTokens ends(tokenizer, 1);
  const Ids fox = tokenizer.encode("fox");
  CHECK(add_special_tokens(ends, tokenizer, "fox", 1) == Ids{0} + fox + Ids{1});
  CHECK(add_special_tokens(ends, tokenizer, begin + "fox" + end, 0) ==
        tokenizer.encode(begin + "fox" + end));
  CHECK(add_special_tokens(ends, tokenizer, "", 1) == Ids{0, 1});
  CHECK(add_special_tokens(ends, tokenizer, begin, 0) == Ids{0, 1});
}

TEST_CASE("double_bos: version 1 of the samples adds both to every text") {
  const Tokenizer tokenizer = Tokenizer::load(fixture("llama3"));
  SpecialTokens ends(tokenizer, 1, /*doubles=*/true);
  const std::string text =
      std::string(tokenizer.id_to_token(0)) + "fox" + std::string(tokenizer.id_to_token(1));
  CHECK(add_special_tokens(ends, tokenizer, text, 1) == Ids{0} + tokenizer.encode(text) + Ids{1});
  CHECK(ends.own_special_tokens().empty());
}

}  // namespace zeroth::data::special_tokens_test
