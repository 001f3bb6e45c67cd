#include "data/tokenizer/tokenizer.h"

#include <thread>

#include "data/tokenizer/unicode.h"
#include "tests/data/data_test_support.h"
#include "tests/data/lines.h"

namespace zeroth::data::tokenizer_test {
using nlohmann::json;
using Ids = std::vector<int32_t>;

namespace {

constexpr const char* kFamilies[] = {"gpt2",   "llama3", "qwen",    "prefix_space",
                                     "smollm", "cl100k", "tekken",  "llama2",
                                     "phi3",   "gemma",  "mistral", "unknowns"};

// FNV-1a over whole numbers instead of bytes.
class Mixed {
 public:
  void add_list(const Ids& ids) { add_all(ids); }
  void add_list(std::string_view text) {
    add_all(std::span(reinterpret_cast<const uint8_t*>(text.data()), text.size()));
  }

  std::string hex() const { return fmt::format("{:016x}", value_); }

 private:
  template <typename Numbers>
  void add_all(const Numbers& numbers) {
    add(numbers.size());
    for (const auto number : numbers) add(number);
  }

  void add(uint64_t number) { value_ = (value_ ^ number) * 0x100000001B3; }

  uint64_t value_ = 0xCBF29CE484222325;
};

json gpt2_file() {
  return read_fixture("gpt2/tokenizer.json");
}

// `tokenizers` gives a token of some of a character's bytes all of them.
TextRange whole_characters(std::string_view text, TextRange range) {
  while (range.end < text.size() && (text[range.end] & 0xC0) == 0x80) ++range.end;
  if (range.begin < text.size()) range.begin = previous_char(text, range.begin + 1);
  return range;
}

std::string load_error(const json& file) {
  TempFolder directory;
  directory.write("tokenizer.json", file.dump());
  return error_of([&] { Tokenizer::load(directory.path()); });
}

}  // namespace

TEST_CASE("Ids and texts are those of Hugging Face's tokenizers, for every family") {
  for (const char* const family : kFamilies) {
    INFO(family);
    const Tokenizer tokenizer = Tokenizer::load(fixture(family));
    for (const json& one : read_fixture(std::string(family) + "/cases.json")) {
      const auto text = one.at("text").get<std::string>();
      INFO(text);
      const Ids ids = tokenizer.encode(text);
      CHECK(ids == one.at("ids").get<Ids>());
      auto [whole, suffix] = tokenizer.text_template();
      whole.insert(whole.end(), ids.begin(), ids.end());
      whole.insert(whole.end(), suffix.begin(), suffix.end());
      CHECK(whole == one.at("with_template").get<Ids>());
      CHECK(tokenizer.decode(whole) == one.at("decoded").get<std::string>());
    }
  }
}

// Of the tokenizers here, those whose normalizer replaces several characters together.
constexpr const char* kWiderOffsets[] = {"qwen", "unknowns"};

TEST_CASE("Tokens have the offsets of tokenizers, or wider ones where characters are merged") {
  for (const char* const family : kFamilies) {
    INFO(family);
    const Tokenizer tokenizer = Tokenizer::load(fixture(family));
    size_t wider = 0;
    for (const json& one : read_fixture(std::string(family) + "/cases.json")) {
      const auto text = one.at("text").get<std::string>();
      INFO(text);
      const auto wanted = one.at("offsets").get<std::vector<std::pair<size_t, size_t>>>();
      const Encoding encoding = tokenizer.encode_with_offsets(text);
      CHECK(encoding.ids == one.at("ids").get<Ids>());
      REQUIRE(encoding.offsets.size() == wanted.size());
      for (size_t i = 0; i < wanted.size(); ++i) {
        const auto [begin, end] = whole_characters(text, encoding.offsets[i]);
        CHECK(begin <= wanted[i].first);
        CHECK(end >= wanted[i].second);
        wider += std::pair(begin, end) != wanted[i] ? 1 : 0;
      }
    }
    const bool may_be_wider = std::ranges::count(kWiderOffsets, std::string_view(family)) > 0;
    CHECK((wider > 0) == may_be_wider);
  }
}

TEST_CASE("So are those of 10,000 lines in many scripts, with odd characters and long words") {
  constexpr size_t kBlock = 100;
  const LineMaker maker(read_fixture("lines.json"));
  std::vector<std::string> lines;
  for (size_t i = 0; i < 10'000; ++i) lines.push_back(maker.line(i));
  for (const char* const family : kFamilies) {
    const Tokenizer tokenizer = Tokenizer::load(fixture(family));
    const json wanted = read_fixture(std::string(family) + "/hashes.json");
    for (size_t block = 0; block < lines.size() / kBlock; ++block) {
      Mixed ids, texts;
      for (size_t i = block * kBlock; i < (block + 1) * kBlock; ++i) {
        const Ids encoded = tokenizer.encode(lines[i]);
        ids.add_list(encoded);
        texts.add_list(tokenizer.decode(encoded));
      }
      INFO(std::string(family) << ", lines from " << block * kBlock);
      CHECK(ids.hex() == wanted.at("ids").at(block).get<std::string>());
      CHECK(texts.hex() == wanted.at("decoded").at(block).get<std::string>());
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
  file["normalizer"] = {{"type", "Nmt"}};
  check_contains(load_error(file), "tokenizer.json: normalizer type 'Nmt'");
  file = gpt2_file();
  file["normalizer"] = {{"type", "Strip"}, {"strip_left", true}, {"strip_right", false}};
  file["pre_tokenizer"] = {{"type", "Metaspace"}, {"prepend_scheme", "first"}};
  check_contains(load_error(file), "strips the beginning before");
  file = gpt2_file();
  file["model"].erase("vocab");
  check_contains(load_error(file), "vocab");
  file = gpt2_file();
  file["added_tokens"][0]["id"] = 300;
  check_contains(load_error(file), "300, but 0");
  check_contains(load_error(json::array()), "tokenizer.json");
  check_contains(error_of([] { Tokenizer::load("/nowhere"); }), "/nowhere/tokenizer.json");
}

TEST_CASE("Characters that are left out are counted") {
  json file = gpt2_file();
  file["model"]["vocab"].erase("\u010b");  // of byte 11
  TempFolder directory;
  directory.write("tokenizer.json", file.dump());
  const Tokenizer tokenizer = Tokenizer::load(directory.path());
  CHECK(tokenizer.encode("ab\vab") == tokenizer.encode("abab"));
  CHECK(tokenizer.num_dropped_chars() == 1);
}

TEST_CASE("A folder with another kind of tokenizer is told how to convert it") {
  for (const char* const other : {"tokenizer.model", "vocab.json"}) {
    TempFolder directory;
    directory.write(other, "");
    const std::string message = error_of([&] { Tokenizer::load(directory.path()); });
    check_contains(message, fmt::format("no tokenizer.json, but {}; create it from", other));
    check_contains(message, fmt::format("T.from_pretrained('{0}').save_pretrained('{0}')",
                                        directory.path().string()));
  }
}

}  // namespace zeroth::data::tokenizer_test
