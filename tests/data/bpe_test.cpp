#include "data/tokenizer/bpe.h"

#include "tests/data/data_test_support.h"

namespace zeroth::data::bpe_test {
using nlohmann::json;

namespace {

json small_model() {
  return json::parse(R"({"type": "BPE",
    "vocab": {"a": 0, "b": 1, "c": 2, "ab": 3, "bc": 4, "abc": 5, "aa": 6, "cab": 7},
    "merges": [["b", "c"], ["a", "b"], ["a", "bc"], ["a", "a"]]})");
}

std::vector<int32_t> encode(const Bpe& bpe, std::string_view word) {
  std::vector<int32_t> ids;
  bpe.encode(word, ids);
  return ids;
}

using Ids = std::vector<int32_t>;

}  // namespace

TEST_CASE("The pair of lowest rank merges first, of equal ones the leftmost") {
  const Bpe bpe(small_model());
  CHECK(encode(bpe, "abc") == Ids{5});
  CHECK(encode(bpe, "ab") == Ids{3});
  CHECK(encode(bpe, "aaa") == Ids{6, 0});
  CHECK(encode(bpe, "aaabcab") == Ids{6, 5, 3});
  CHECK(encode(bpe, "") == Ids{});
}

TEST_CASE("A word gives the same ids from the cache, and long words go past it") {
  const Bpe bpe(small_model());
  CHECK(encode(bpe, "abcab") == encode(bpe, "abcab"));
  const auto ids = encode(bpe, std::string(100001, 'a'));
  CHECK(ids.size() == 50001);
  CHECK(ids.back() == 0);
}

TEST_CASE("A very long word takes no quadratic time") {
  const Bpe bpe(small_model());
  std::string word;
  for (int i = 0; i < 500'000; ++i) word += i % 3 == 0 ? "ab" : "a";
  CHECK(seconds_of([&] { encode(bpe, word); }) < 2);
}

TEST_CASE("A word of the vocabulary is taken whole only when merges are ignored") {
  json model = small_model();
  CHECK(encode(Bpe(model), "cab") == Ids{2, 3});
  model["ignore_merges"] = true;
  CHECK(encode(Bpe(model), "cab") == Ids{7});
}

TEST_CASE("Merges may be written as strings") {
  json model = small_model();
  model["merges"] = {"b c", "a b", "a bc", "a a"};
  CHECK(encode(Bpe(model), "aaabcab") == Ids{6, 5, 3});
}

TEST_CASE(
    "A character without a token is left out and counted where there is none for the unknown") {
  const Bpe bpe(small_model());
  CHECK(encode(bpe, "a\u00e9b") == Ids{3});
  CHECK(encode(bpe, "a\u00e9b") == Ids{3});
  CHECK(encode(bpe, "bb") == Ids{1, 1});
  CHECK(bpe.num_dropped_chars() == 2);
  CHECK(encode(bpe, std::string(100, '?')) == Ids{});
  CHECK(bpe.num_dropped_chars() == 102);
  json model = small_model();
  model["unk_token"] = "<unk>";  // is not in the vocabulary
  CHECK(encode(Bpe(model), "axb") == Ids{3});
}

TEST_CASE("Unknown characters become unknown tokens, neighbours one if they are fused") {
  json model = small_model();
  model["unk_token"] = "c";
  CHECK(encode(Bpe(model), "xya?") == Ids{2, 2, 0, 2});
  model["fuse_unk"] = true;
  CHECK(encode(Bpe(model), "xya?") == Ids{2, 0, 2});
  const std::string many(100, '?');
  CHECK(encode(Bpe(model), many + "a" + many) == Ids{2, 0, 2});
}

TEST_CASE("A character without a token falls back to its bytes if all of them are tokens") {
  json model = small_model();
  model["byte_fallback"] = true;
  model["unk_token"] = "c";
  model["vocab"].update({{"<0xC3>", 10}, {"<0xA9>", 11}});
  const Bpe bpe(model);
  CHECK(encode(bpe, "ab\u00e9a") == Ids{3, 10, 11, 0});
  CHECK(encode(bpe, "\u20ac") == Ids{2});
  // The unknown one waits for others like it, also behind bytes.
  CHECK(encode(bpe, "\u20ac\u00e9a") == Ids{10, 11, 2, 0});
}

TEST_CASE("A long word is encoded in parts only where no merge joins them") {
  const Bpe bpe(small_model());
  std::string word;
  Ids ids;
  for (int i = 0; i < 40; ++i) {
    word += "abccb";  // no merge joins c with c or b, nor b with a
    ids.insert(ids.end(), {5, 2, 1});
  }
  CHECK(encode(bpe, word) == ids);
  json joined = small_model();
  joined["vocab"].update({{"abccb", 20}, {"ba", 21}, {"cb", 22}, {"abccbabccb", 23}});
  joined["merges"].insert(joined["merges"].end(), {{"c", "b"}, {"abc", "cb"}, {"abccb", "abccb"}});
  CHECK(encode(Bpe(joined), word) == Ids(20, 23));
}

TEST_CASE("What would change the ids and is not supported is refused by name") {
  const auto refuse = [](const char* key, const json& value, const char* part) {
    json model = small_model();
    model[key] = value;
    check_contains(error_of([&] { Bpe refused(model); }), part);
  };
  refuse("type", "WordPiece", "'WordPiece'");
  refuse("dropout", 0.1, "dropout = 0.1");
  refuse("type", "Unigram", "'Unigram' is not supported, only BPE; train on a .bin file");
  refuse("continuing_subword_prefix", "##", "continuing_subword_prefix");
  refuse("end_of_word_suffix", "</w>", "end_of_word_suffix");
  refuse("merges", {"ab"}, "model.merges[0] is \"ab\"");
  refuse("merges", {"a b c"}, "model.merges[0] is \"a b c\", expected two strings");
  refuse("merges", json::array({json::array({"a", "c"})}), "'ac'");
}

TEST_CASE("Ids that are none, and a vocabulary of another shape, are Errors with their key") {
  const auto error = [](const char* vocab) {
    const json model = {{"vocab", json::parse(vocab)}, {"merges", json::array()}};
    return error_of([&] { Bpe refused(model); });
  };
  check_contains(error(R"({"a": 100000000})"), "model.vocab.a is 100000000, expected an integer");
  check_contains(error(R"({"a": -1})"), "model.vocab.a is -1, expected an integer in 0..4194303");
  check_contains(error(R"({"a": 4294967297})"), "model.vocab.a is 4294967297");
  check_contains(error(R"({"a": 1e300})"), "model.vocab.a is 1e+300");
  check_contains(error("[1]"), "model.vocab is [1], expected an object");
}

}  // namespace zeroth::data::bpe_test
