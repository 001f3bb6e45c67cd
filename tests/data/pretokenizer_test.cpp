#include "data/tokenizer/pretokenizer.h"

#include "tests/data/data_test_support.h"

namespace zeroth::data::pretokenizer_test {
using nlohmann::json;

namespace {

std::vector<std::string> split_words(const Pretokenizer& pretokenizer, const std::string& text) {
  std::vector<std::string> words;
  pretokenizer.split({.text = text}, /*is_beginning=*/true, /*aligned=*/false,
                     [&](const AlignedText& word) { words.emplace_back(word.text); });
  return words;
}

void check_refused(const char* pre_tokenizer, const char* part) {
  check_contains(error_of([&] { Pretokenizer refused(json::parse(pre_tokenizer)); }), part);
}

}  // namespace

TEST_CASE("Words are those of Hugging Face's tokenizers, for every kind of pre-tokenizer") {
  int cases = 0;
  for (const char* const file : {"pretokenizers_1.json", "pretokenizers_2.json"}) {
    for (const json& shape : read_fixture(file)) {
      const Pretokenizer pretokenizer(shape.at("pre_tokenizer"));
      for (const json& one : shape.at("cases")) {
        INFO(shape.at("pre_tokenizer").dump());
        const auto text = one.at("text").get<std::string>();
        CHECK(split_words(pretokenizer, text) == one.at("words").get<std::vector<std::string>>());
        ++cases;
      }
    }
  }
  CHECK(cases > 200);
}

TEST_CASE("What is not known is refused by name") {
  check_refused(R"({"type": "UnicodeScripts"})", "'UnicodeScripts'");
  check_refused(R"({"type": "Sequence", "pretokenizers": [{"type": "Whitespace"}]})",
                "'Whitespace'");
  check_refused(R"({"type": "Split", "pattern": {"Regex": "a"}, "behavior": "Odd"})", "'Odd'");
  check_refused(R"({"type": "Metaspace", "prepend_scheme": "last"})",
                "pre_tokenizer.prepend_scheme is \"last\", expected always, first or never");
  check_refused(R"({"type": "Metaspace", "replacement": "ab"})", "expected a character");
  check_refused(R"({"type": "Sequence", "pretokenizers": [{"type": "Digits"},
                    {"type": "Metaspace", "prepend_scheme": "first"}]})",
                "pre_tokenizer.pretokenizers[1]: prepend_scheme 'first' after other steps");
}

TEST_CASE("Without a pre-tokenizer a text is one word") {
  CHECK(split_words(Pretokenizer(nullptr), "a b  c") == std::vector<std::string>{"a b  c"});
}

TEST_CASE("Only a text's beginning gets the mark of the scheme 'first'") {
  const Pretokenizer first(json::parse(R"({"type": "Metaspace", "prepend_scheme": "first"})"));
  CHECK(first.depends_on_beginning());
  for (const bool begins : {true, false}) {
    std::string words;
    first.split({.text = "a b"}, begins, /*aligned=*/false,
                [&](const AlignedText& word) { words += std::string(word.text) + "|"; });
    CHECK(words == (begins ? "\u2581a|\u2581b|" : "a|\u2581b|"));
  }
  // Old files have it so.
  const Pretokenizer never(json::parse(R"({"type": "Metaspace", "add_prefix_space": false})"));
  CHECK(split_words(never, "a b") == std::vector<std::string>{"a", "\u2581b"});
}

TEST_CASE("The byte alphabet of the byte alphabet's is stopped before it fills the memory") {
  json many = {{"type", "Sequence"}, {"pretokenizers", json::array()}};
  for (int i = 0; i < 5; ++i) many["pretokenizers"].push_back({{"type", "ByteLevel"}});
  check_contains(error_of([&] { Pretokenizer refused(many); }), "more than 4 ByteLevel");
}

TEST_CASE("Steps without end are refused before they are nested in each other") {
  json many = {{"type", "Sequence"}, {"pretokenizers", json::array()}};
  for (int i = 0; i < 100'000; ++i) many["pretokenizers"].push_back({{"type", "Digits"}});
  check_contains(error_of([&] { Pretokenizer refused(many); }),
                 "pre_tokenizer.pretokenizers[100]: more than 100 steps");
}

TEST_CASE("A step that lacks a part is refused by its key") {
  check_refused(R"({"type": 1})", "pre_tokenizer.type is 1, expected a string");
  check_refused(R"({"type": "Split", "pattern": {}})", "pre_tokenizer.pattern.String is missing");
  check_refused(R"({"type": "Sequence", "pretokenizers": {}})",
                "pre_tokenizer.pretokenizers is {}, expected a list");
}

}  // namespace zeroth::data::pretokenizer_test
