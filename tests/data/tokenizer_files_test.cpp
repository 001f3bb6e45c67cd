#include "data/tokenizer/tokenizer.h"

#include "tests/data/data_test_support.h"

namespace zeroth::data::tokenizer_files_test {
using nlohmann::json;
using Ids = std::vector<int32_t>;

namespace {

const char* const kBos = R"({"type": "TemplateProcessing",
  "single": [{"SpecialToken": {"id": "<s>"}}, {"Sequence": {"id": "A"}}],
  "special_tokens": {"<s>": {"id": "<s>", "ids": [7]}}})";

std::optional<int32_t> token_to_id(const std::string& token) {
  if (token == "</s>") return 2;
  return std::nullopt;
}

}  // namespace

TEST_CASE("The template's tokens stand before and after the text") {
  CHECK(parse_text_template(nullptr).prefix.empty());
  CHECK(parse_text_template(json::parse(R"({"type": "ByteLevel"})")).suffix.empty());
  const auto around = parse_text_template(json::parse(R"({"type": "TemplateProcessing",
    "single": [{"SpecialToken": {"id": "a"}}, {"Sequence": {"id": "A"}}, {"SpecialToken": {"id": "b"}}],
    "special_tokens": {"a": {"ids": [1, 2]}, "b": {"ids": [3]}}})"));
  CHECK(around.prefix == Ids{1, 2});
  CHECK(around.suffix == Ids{3});
}

TEST_CASE("In a sequence, a later template goes around the ones before") {
  const json inner = json::parse(kBos);
  json outer = inner;
  outer["special_tokens"]["<s>"]["ids"] = {8};
  const json both = {{"type", "Sequence"}, {"processors", {inner, outer}}};
  CHECK(parse_text_template(both).prefix == Ids{8, 7});
}

TEST_CASE("Other post-processors are refused by name") {
  check_contains(
      error_of([] { parse_text_template(json::parse(R"({"type": "BertProcessing"})")); }),
      "'BertProcessing'");
  json twice = json::parse(kBos);
  twice["single"].push_back({{"Sequence", {{"id", "A"}}}});
  check_contains(error_of([&] { parse_text_template(twice); }), "twice");
}

TEST_CASE("The end of text is taken from the first file that names it") {
  TempFolder directory;
  CHECK(find_end_of_text(directory.path(), token_to_id) == std::nullopt);
  directory.write("config.json", R"({"eos_token_id": 9})");
  CHECK(find_end_of_text(directory.path(), token_to_id) == 9);
  directory.write("generation_config.json", R"({"eos_token_id": [5, 6]})");
  CHECK(find_end_of_text(directory.path(), token_to_id) == 5);
  directory.write("special_tokens_map.json", R"({"eos_token": {"content": "</s>"}})");
  CHECK(find_end_of_text(directory.path(), token_to_id) == 2);
  directory.write("tokenizer_config.json", R"({"eos_token": null})");
  CHECK(find_end_of_text(directory.path(), token_to_id) == 2);
  directory.write("tokenizer_config.json", R"({"eos_token": "<no>"})");
  check_contains(error_of([&] { find_end_of_text(directory.path(), token_to_id); }), "'<no>'");
}

TEST_CASE("A file that is no JSON is an Error with its path") {
  TempFolder directory;
  directory.write("config.json", "{");
  check_contains(error_of([&] { find_end_of_text(directory.path(), token_to_id); }),
                 "config.json:1:1: not JSON: it ends here");
}

TEST_CASE("An end of text that is no id is an Error with file, key and value") {
  TempFolder directory;
  for (const char* const id : {"-1", "100000000", "1e300", "2.5"}) {
    directory.write("config.json", fmt::format(R"({{"eos_token_id": {}}})", id));
    check_contains(error_of([&] { find_end_of_text(directory.path(), token_to_id); }),
                   "config.json: eos_token_id is ");
  }
}

TEST_CASE("Ids of a template that are no ids are Errors with their key") {
  json file = json::parse(kBos);
  for (const json& id : {json(-1), json(1e300), json("x"), json(100'000'000)}) {
    file["special_tokens"]["<s>"]["ids"] = json::array({id});
    check_contains(error_of([&] { parse_text_template(file); }),
                   "post_processor.special_tokens.<s>.ids[0] is ");
  }
}

TEST_CASE("Post-processors that go around each other without end are refused") {
  json many = {{"type", "Sequence"}, {"processors", json::array()}};
  for (int i = 0; i < 2000; ++i) many["processors"].push_back(json::parse(kBos));
  check_contains(error_of([&] { parse_text_template(many); }), "more than 1000 tokens");
}

}  // namespace zeroth::data::tokenizer_files_test
