#include "data/tokenizer.h"

#include <thread>

#include "tests/data/data_test_support.h"

using namespace zeroth::data;
using nlohmann::json;
using Ids = std::vector<int32_t>;

namespace {

json gpt2_file() {
  return read_fixture("gpt2/tokenizer.json");
}

std::string load_error(const json& file) {
  TempFolder folder;
  folder.write("tokenizer.json", file.dump());
  return error_of([&] { Tokenizer::load(folder.path()); });
}

}  // namespace

TEST_CASE("Ids are those of Hugging Face's tokenizers") {
  for (const char* const family : {"gpt2", "llama3", "qwen", "prefix_space"}) {
    INFO(family);
    const Tokenizer tokenizer = Tokenizer::load(fixture(family));
    for (const json& one : read_fixture(std::string(family) + "/cases.json")) {
      const auto text = one.at("text").get<std::string>();
      INFO(text);
      const Ids ids = tokenizer.encode(text);
      CHECK(ids == one.at("ids").get<Ids>());
      Ids whole = tokenizer.prefix();
      whole.insert(whole.end(), ids.begin(), ids.end());
      whole.insert(whole.end(), tokenizer.suffix().begin(), tokenizer.suffix().end());
      CHECK(whole == one.at("with_template").get<Ids>());
    }
  }
}

TEST_CASE("Decoding gives the text back") {
  const Tokenizer tokenizer = Tokenizer::load(fixture("llama3"));
  for (const json& one : read_fixture("llama3/cases.json")) {
    const auto text = one.at("text").get<std::string>();
    CHECK(tokenizer.decode(tokenizer.encode(text)) == text);
  }
  CHECK(tokenizer.decode(Ids{1}) == "<|end|>");
}

TEST_CASE("The end of text is known in each form in which families write it") {
  CHECK(Tokenizer::load(fixture("gpt2")).end_of_text() == 0);
  CHECK(Tokenizer::load(fixture("llama3")).end_of_text() == 1);
  CHECK(Tokenizer::load(fixture("qwen")).end_of_text() == 0);
  CHECK(Tokenizer::load(fixture("prefix_space")).end_of_text() == 1);
}

TEST_CASE("The vocabulary counts added tokens") {
  const json file = gpt2_file();
  int64_t highest = 0;
  for (const json& token : file.at("added_tokens")) {
    highest = std::max(highest, token.at("id").get<int64_t>());
  }
  const Tokenizer tokenizer = Tokenizer::load(fixture("gpt2"));
  CHECK(tokenizer.vocab_size() == highest + 1);
  check_contains(error_of([&] { tokenizer.decode(Ids{-1}); }), "-1");
  const Ids above{static_cast<int32_t>(highest + 1)};
  check_contains(error_of([&] { tokenizer.decode(above); }), std::to_string(highest + 1));
}

TEST_CASE("Text that is not UTF-8 is an Error with the offset") {
  const Tokenizer tokenizer = Tokenizer::load(fixture("gpt2"));
  check_contains(error_of([&] { tokenizer.encode("abc\xff"); }), "byte 3");
}

TEST_CASE("Several threads may encode with one tokenizer") {
  const Tokenizer tokenizer = Tokenizer::load(fixture("gpt2"));
  const json cases = read_fixture("gpt2/cases.json");
  std::array<int, 4> wrong{};
  {
    std::vector<std::jthread> threads;
    for (int& count : wrong) {
      threads.emplace_back([&] {
        for (int round = 0; round < 20; ++round) {
          for (const json& one : cases) {
            const auto ids = tokenizer.encode(one.at("text").get_ref<const std::string&>());
            count += ids != one.at("ids").get<Ids>() ? 1 : 0;
          }
        }
      });
    }
  }
  for (const int count : wrong) CHECK(count == 0);
}

TEST_CASE("A file that is not understood is refused with its path and the name") {
  json file = gpt2_file();
  file["normalizer"] = {{"type", "Lowercase"}};
  check_contains(load_error(file), "tokenizer.json: normalizer type 'Lowercase'");
  file = gpt2_file();
  file["normalizer"] = {{"type", "Sequence"},
                        {"normalizers", {{{"type", "NFC"}}, {{"type", "Strip"}}}}};
  check_contains(load_error(file), "'Strip'");
  file = gpt2_file();
  file["model"].erase("vocab");
  check_contains(load_error(file), "vocab");
  file = gpt2_file();
  file["added_tokens"][0]["id"] = 300;
  check_contains(load_error(file), "300, but 0");
  check_contains(load_error(json::array()), "tokenizer.json");
  check_contains(error_of([] { Tokenizer::load("/nowhere"); }), "/nowhere/tokenizer.json");
}
