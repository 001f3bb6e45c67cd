#include "data/samples/dataset.h"

#include "tests/data/data_test_support.h"

namespace zeroth::data::sample_text_test {

namespace {

std::string describe(const std::filesystem::path& path, const Tokenizer& tokenizer) {
  const auto dataset = open_dataset(
      {.path = path, .tokenizer = &tokenizer, .seq_len = 64, .vocab_size = tokenizer.vocab_size()});
  return describe_sample(*dataset, 0, &tokenizer);
}

}  // namespace

TEST_CASE("A sample is shown token by token, with its text and what is trained") {
  TempFolder directory;
  const Tokenizer tokenizer = Tokenizer::load(fixture("llama3"));
  const auto path = directory.write("t.jsonl", R"({"prompt": "the\n", "completion": "fox"})");
  const auto prompt = tokenizer.encode("the\n"), answer = tokenizer.encode("fox");
  const std::string text = describe(path, tokenizer);
  const size_t tokens = prompt.size() + answer.size() + 2;
  CHECK(text.starts_with(
      fmt::format("{}:1: {} tokens, {} trained\nposition       id  target   text\n", path.string(),
                  tokens, answer.size() + 1)));
  check_contains(text,
                 fmt::format("       0        0  -        \"{}\"\n", tokenizer.id_to_token(0)));
  check_contains(text, "\\n\"\n");
  check_contains(
      text, fmt::format("{:>8}        1  trained  \"{}\"\n", tokens - 1, tokenizer.id_to_token(1)));
  CHECK(std::count(text.begin(), text.end(), '\n') == static_cast<int64_t>(tokens) + 2);
}

TEST_CASE("A part of a character is shown by its bytes, a space where it stands") {
  TempFolder directory;
  const Tokenizer bytes = Tokenizer::load(fixture("gpt2"));
  check_contains(describe(directory.write("t.jsonl", R"({"text": "a \ud83d\ude80"})"), bytes),
                 "\"\\xf0");
  const Tokenizer words = Tokenizer::load(fixture("llama2"));
  std::string text = describe(directory.write("t.jsonl", R"({"text": "the fox"})"), words);
  check_contains(text, "\" ");
}

TEST_CASE("Without a tokenizer there are ids alone") {
  TempFolder directory;
  const auto path = directory.write_numbers<uint16_t>("t.bin", {5, 6, 7});
  const auto dataset = open_dataset({.path = path, .seq_len = 8, .vocab_size = 9});
  CHECK(describe_sample(*dataset, 0, nullptr) ==
        path.string() +
            " sample 0: 3 tokens, 2 trained\nposition       id  target   \n       0        5  -\n"
            "       1        6  trained\n       2        7  trained\n");
}

}  // namespace zeroth::data::sample_text_test
