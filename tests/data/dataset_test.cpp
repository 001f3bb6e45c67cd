#include "data/samples/dataset.h"

#include "tests/data/data_test_support.h"

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

}  // namespace zeroth::data::dataset_test
