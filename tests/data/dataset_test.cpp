#include "data/samples/dataset.h"

#include "tests/data/container_test_support.h"

namespace zeroth::data::dataset_test {

namespace {

std::string open_error(DatasetOptions options) {
  options.seq_len = 4;
  options.vocab_size = 512;
  return error_of([&] { open_dataset(options); });
}

}  // namespace

TEST_CASE("The extension decides the reader, and an unknown one is an Error") {
  TempFolder directory;
  check_contains(open_error({.path = directory.write("t.tsv", "a,b")}), "unknown file type '.tsv'");
  check_contains(open_error({.path = directory.path() / "none.bin"}), "none.bin");
  check_contains(open_error({.path = directory.path() / "none.jsonl"}), "none.jsonl: no such file");
}

TEST_CASE("Text needs a tokenizer") {
  TempFolder directory;
  check_contains(open_error({.path = directory.write("t.txt", "abc")}), "tokenizer.json");
  check_contains(open_error({.path = directory.write("t.jsonl", "{}")}), "tokenizer.json");
}

TEST_CASE("Field names without .jsonl are an Error") {
  TempFolder directory;
  check_contains(
      open_error({.path = directory.write("t.bin", "abcd"), .records = {.prompt_field = "q"}}),
      "for .jsonl");
}

TEST_CASE("Samples are the same whatever container holds them") {
  const Tokenizer tokenizer = Tokenizer::load(fixture("llama3"));
  const auto samples = [&](const std::filesystem::path& path) {
    const auto dataset = open_dataset({.path = path,
                                       .tokenizer = &tokenizer,
                                       .seq_len = 64,
                                       .vocab_size = tokenizer.vocab_size()});
    std::vector<std::vector<int64_t>> rows;
    for (int64_t i = 0; i < dataset->size(); ++i) {
      std::vector<int64_t> tokens(64), targets(64);
      dataset->fill(i, tokens, targets);
      rows.insert(rows.end(), {tokens, targets});
    }
    return rows;
  };
  const auto expected = samples(container("text.jsonl"));
  CHECK(expected.size() == 10);
  std::vector<const char*> names = {"text.json.gz", "text.jsonl.zst", "text.csv", "text.csv.zst"};
  if (has_arrow()) names.insert(names.end(), {"text.parquet", "text.arrow"});
  for (const char* const name : names) {
    INFO(name);
    CHECK(samples(container(name)) == expected);
  }
  TempFolder directory;
  CHECK(samples(container("plain.txt.gz")) ==
        samples(directory.write("t.txt", "one text\nof two lines")));
  if (!has_arrow()) return;
  check_contains(error_of([&] { samples(container("types.parquet")); }), "types.parquet:1: ");
}

}  // namespace zeroth::data::dataset_test
