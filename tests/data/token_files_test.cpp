// Files of token ids that users name.
#include <fcntl.h>

#include "data/samples/token_cache.h"
#include "tests/data/data_test_support.h"

namespace zeroth::data::token_files_test {
namespace {

const Tokenizer& llama() {
  static const Tokenizer tokenizer = Tokenizer::load(fixture("llama3"));
  return tokenizer;
}

DatasetOptions options(const std::filesystem::path& path, int64_t seq_len = 64) {
  return {
      .path = path, .tokenizer = &llama(), .seq_len = seq_len, .vocab_size = llama().vocab_size()};
}

void check_equal(const Dataset& one, const Dataset& other) {
  REQUIRE(one.size() == other.size());
  for (int64_t i = 0; i < one.size(); ++i) {
    const auto length = static_cast<size_t>(one.length(i));
    REQUIRE(other.length(i) == one.length(i));
    std::vector<int64_t> tokens(length), targets(length), other_tokens(length),
        other_targets(length);
    one.fill(i, tokens, targets);
    other.fill(i, other_tokens, other_targets);
    CHECK(tokens == other_tokens);
    CHECK(targets == other_targets);
  }
}

}  // namespace

TEST_CASE("Written records are read back as the samples that they were, whatever is cut") {
  TempFolder directory;
  const auto path =
      directory.write("t.jsonl",
                      "{\"prompt\": \"the\", \"completion\": \" fox jumps\"}\n"
                      "{\"prompt\": \"the quick brown\", \"completion\": \" fox\"}\n");
  const TokenCounts counts = write_token_files({options(path)}, directory / "out", false);
  CHECK(counts.sequences == 2);
  CHECK(counts.trained < counts.ids);
  CHECK(std::filesystem::exists(directory / "out.mask"));
  CHECK_FALSE(std::filesystem::exists(directory / "out.bin.part"));
  for (const int64_t seq_len : {4, 64})
    check_equal(*open_dataset(options(path, seq_len)),
                *open_dataset(options(directory / "out.bin", seq_len)));
  check_contains(error_of([&] { write_token_files({options(path)}, directory / "out", false); }),
                 "out.bin exists: --overwrite replaces it");
  CHECK(write_token_files({options(path), options(path)}, directory / "out", true).sequences == 4);
}

TEST_CASE("A written text is one sequence, and one stream where texts are joined") {
  TempFolder directory;
  const auto path = directory.write("t.txt", "the quick brown fox jumps over the lazy dog\n");
  write_token_files({options(path)}, directory / "out", false);
  CHECK_FALSE(std::filesystem::exists(directory / "out.mask"));
  DatasetOptions written = options(directory / "out.bin", 5);
  CHECK(open_dataset(written)->size() == 1);
  written.long_text = LongText::kChunk;
  check_equal(*open_dataset(options(path, 5)), *open_dataset(written));
  const auto records = directory.write("r.jsonl", "{\"text\": \"a\"}\n");
  check_contains(error_of([&] {
                   write_token_files({options(path), options(records)}, directory / "b", false);
                 }),
                 "write one file of tokens for each kind");
}

TEST_CASE("A file that cannot be read leaves nothing, and the files that were there") {
  TempFolder directory;
  const auto good = directory.write("t.jsonl", "{\"text\": \"the\"}\n");
  const auto bad = directory.write("bad.jsonl", "{\"text\": \"the\"}\n{\"text\": 1}\n");
  write_token_files({options(good)}, directory / "out", false);
  CHECK_THROWS_AS(write_token_files({options(good), options(bad)}, directory / "out", true), Error);
  for (const char* const extension : {".bin", ".idx", ".mask"}) {
    CHECK(std::filesystem::exists((directory / "out").string() + extension));
    CHECK_FALSE(std::filesystem::exists((directory / "out").string() + extension + ".part"));
  }
}

TEST_CASE("The sequences of Megatron's index are samples, unless texts are joined") {
  TempFolder directory;
  DatasetOptions pair =
      options(directory.write_numbers<uint16_t>("m.bin", {1, 2, 3, 4, 5, 6, 7, 8, 9}));
  CHECK(open_dataset(pair)->size() == 1);
  const FileDescriptor index(::open((directory / "m.idx").c_str(), O_WRONLY | O_CREAT, 0644));
  write_megatron_index(index.get(), TokenType::kUint16, std::vector<int32_t>{4, 2, 3});
  const auto samples = open_dataset(pair);
  REQUIRE(samples->size() == 3);
  std::vector<int64_t> tokens(2), targets(2);
  samples->fill(2, tokens, targets);
  CHECK(tokens == std::vector<int64_t>{7, 8});
  CHECK(targets == std::vector<int64_t>{8, 9});
  CHECK(samples->sample_name(2) == pair.path.string() + " sequence 2");
  pair.long_text = LongText::kChunk;
  CHECK(open_dataset(pair)->size() == 1);
  pair.long_text = LongText::kTruncate;
  pair.version = 2;  // a run of an earlier version goes on with its windows
  CHECK(open_dataset(pair)->size() == 1);
}

TEST_CASE("A mask without an index is an Error") {
  TempFolder directory;
  const auto path = directory.write_numbers<uint16_t>("t.bin", {1, 2, 3, 4});
  directory.write("t.mask", "a");
  check_contains(error_of([&] { open_dataset(options(path)); }), "has a mask, but no index (.idx)");
}

}  // namespace zeroth::data::token_files_test
