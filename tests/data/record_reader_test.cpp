#include "data/record_reader.h"

#include "tests/data/data_test_support.h"

using namespace zeroth::data;

namespace {

using Ids = std::vector<int32_t>;

// BOS in front: prefix {0}, end of text 1.
const Tokenizer& llama() {
  static const Tokenizer tokenizer = Tokenizer::load(fixture("llama3"));
  return tokenizer;
}

DatasetOptions chunks(const std::filesystem::path& path, int64_t seq_len) {
  return {.path = path,
          .tokenizer = &llama(),
          .seq_len = seq_len,
          .vocab_size = llama().vocab_size(),
          .long_text = LongText::kChunk};
}

Ids document(const std::string& text) {
  Ids ids = {0};
  const Ids encoded = llama().encode(text);
  ids.insert(ids.end(), encoded.begin(), encoded.end());
  ids.push_back(1);
  return ids;
}

}  // namespace

TEST_CASE("Texts are joined, each as it is alone with its beginning and its end") {
  TempFolder folder;
  const auto path = folder.write("t.jsonl", "{\"text\": \"the fox\"}\n{\"text\": \"jumps\"}\n");
  Ids all = document("the fox");
  for (const int32_t id : document("jumps")) all.push_back(id);
  const EncodedRecords read = read_records(chunks(path, 2));
  CHECK(read.joined);
  CHECK(read.ids == all);
  CHECK(read.records.empty());

  const auto dataset = open_dataset(chunks(path, 2));
  CHECK(dataset->size() == (std::ssize(all) - 1) / 2);
  CHECK(dataset->stats().joined);
  CHECK(dataset->stats().trained_tokens == 2 * dataset->size());
  for (int64_t i = 0; i < dataset->size(); ++i) {
    std::vector<int64_t> tokens(2), targets(2);
    dataset->fill(i, tokens, targets);
    CHECK(tokens == std::vector<int64_t>{all[2 * i], all[2 * i + 1]});
    CHECK(targets == std::vector<int64_t>{all[2 * i + 1], all[2 * i + 2]});
  }
}

TEST_CASE("Pairs stay samples of their own") {
  TempFolder folder;
  const auto path = folder.write("t.json", R"([{"prompt": "the", "completion": " fox"}])");
  const auto dataset = open_dataset(chunks(path, 64));
  CHECK(dataset->size() == 1);
  CHECK(dataset->stats().pairs);
  CHECK_FALSE(dataset->stats().joined);
}

TEST_CASE("Texts that fill no window are an Error that says what takes them") {
  TempFolder folder;
  const auto path = folder.write("t.jsonl", R"({"text": "the fox"})");
  check_contains(
      error_of([&] { open_dataset(chunks(path, 64)); }),
      fmt::format("t.jsonl has {} tokens, one sample of seq_len 64 needs 65; --long-text cut takes "
                  "each text alone, however short",
                  document("the fox").size()));
}

TEST_CASE("A joined file without records, or with a bad one, is an Error as any") {
  TempFolder folder;
  check_contains(error_of([&] { open_dataset(chunks(folder.write("t.jsonl", "\n"), 4)); }),
                 "t.jsonl has no records");
  const auto bad = folder.write("t.jsonl", "{\"text\": \"a\"}\n{\"txt\": \"b\"}");
  check_contains(error_of([&] { open_dataset(chunks(bad, 4)); }), "t.jsonl:2: no field 'text'");
}
