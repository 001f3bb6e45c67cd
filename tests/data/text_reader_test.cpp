#include "data/samples/record_reader.h"
#include "data/samples/token_cache.h"
#include "tests/data/data_test_support.h"

namespace zeroth::data::text_reader_test {
namespace {

std::vector<int32_t> stored_ids(const std::filesystem::path& path, const Tokenizer& tokenizer,
                                size_t threads) {
  std::vector<int32_t> ids;
  const StoredTokens tokens = open_tokens({.path = path,
                                           .tokenizer = &tokenizer,
                                           .seq_len = 8,
                                           .vocab_size = tokenizer.vocab_size(),
                                           .num_threads = threads});
  std::visit([&](const auto& all) { ids.assign(all.begin(), all.end()); }, tokens.store->ids());
  return ids;
}

// A text of some MiB: words, numbers, line breaks, characters of several bytes.
std::string long_text() {
  std::string text;
  uint32_t state = 7;
  const char* const pieces[] = {"the fox",
                                " jumps",
                                "\n",
                                "\n\n",
                                "  ",
                                "12345",
                                " dog's",
                                "\xc3\xa9t\xc3\xa9",
                                " \xe4\xbd\xa0\xe5\xa5\xbd",
                                "! ",
                                "<unk>",
                                "e\xcc\x81",
                                "\xf0\x9f\x98\x80",
                                ".\t"};
  while (text.size() < size_t{5} << 20) {
    state = state * 1664525 + 1013904223;
    text += pieces[(state >> 10) % std::size(pieces)];
  }
  return text;
}

}  // namespace

TEST_CASE("Blocks of a text have together the ids of the whole") {
  TempFolder directory;
  const std::string text = long_text();
  const auto path = directory.write("t.txt", text);
  for (const char* const name : {"llama2", "llama3", "gpt2", "gemma", "qwen"}) {
    INFO(name);
    const Tokenizer tokenizer = Tokenizer::load(fixture(name));
    CHECK(stored_ids(path, tokenizer, 3) == tokenizer.encode(text));
  }
}

TEST_CASE("A word that is longer than a block is encoded whole") {
  TempFolder directory;
  std::string text = "the fox ";
  text.append(size_t{3} << 20, 'a');
  text += " jumps\n" + std::string(100'000, ' ') + std::string(1'500'000, '=') + long_text();
  const auto path = directory.write("t.txt", text);
  for (const char* const name : {"llama3", "llama2"}) {
    INFO(name);
    const Tokenizer tokenizer = Tokenizer::load(fixture(name));
    CHECK(stored_ids(path, tokenizer, 2) == tokenizer.encode(text));
  }
}

TEST_CASE("A byte that is not UTF-8 is named by its place in the text") {
  TempFolder directory;
  std::string text = long_text();
  text[3'000'000] = '\xff';
  const Tokenizer tokenizer = Tokenizer::load(fixture("llama3"));
  const auto path = directory.write("t.txt", text);
  check_contains(error_of([&] { stored_ids(path, tokenizer, 2); }),
                 "t.txt: the text is not UTF-8 at byte 3000000");
}

}  // namespace zeroth::data::text_reader_test
