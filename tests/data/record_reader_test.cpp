#include "data/samples/record_reader.h"

#include "data/samples/token_cache.h"
#include "tests/data/data_test_support.h"

namespace zeroth::data::record_reader_test {

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

Ids stored_ids(const DatasetOptions& options) {
  Ids ids;
  std::visit([&](const auto& all) { ids.assign(all.begin(), all.end()); },
             open_tokens(options).store->ids());
  return ids;
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
  TempFolder directory;
  const auto path = directory.write("t.jsonl", "{\"text\": \"the fox\"}\n{\"text\": \"jumps\"}\n");
  Ids all = document("the fox");
  for (const int32_t id : document("jumps")) all.push_back(id);
  CHECK(stored_ids(chunks(path, 2)) == all);

  const auto dataset = open_dataset(chunks(path, 2));
  CHECK(dataset->size() == std::ssize(all) / 2);
  CHECK(dataset->stats().chunked);
  CHECK(dataset->stats().num_label_tokens == std::ssize(all) - 1);
  std::vector<int64_t> inputs, outputs;
  for (int64_t i = 0; i < dataset->size(); ++i) {
    std::vector<int64_t> tokens(dataset->length(i)), targets(dataset->length(i));
    dataset->fill(i, tokens, targets);
    inputs.insert(inputs.end(), tokens.begin(), tokens.end());
    outputs.insert(outputs.end(), targets.begin(), targets.end());
  }
  CHECK(inputs == std::vector<int64_t>(all.begin(), all.end() - 1));
  CHECK(outputs == std::vector<int64_t>(all.begin() + 1, all.end()));
}

TEST_CASE("joined_tail_dropped: joined texts of less than a window are one short sample") {
  TempFolder directory;
  const auto path = directory.write("t.jsonl", R"({"text": "the fox"})");
  const auto dataset = open_dataset(chunks(path, 64));
  CHECK(dataset->size() == 1);
  CHECK(dataset->length(0) == std::ssize(document("the fox")) - 1);
}

TEST_CASE("double_bos: texts that are joined have one begin and one end token each") {
  TempFolder directory;
  const std::string begin(llama().id_to_token(0)), end(llama().id_to_token(1));
  const auto plain = directory.write("a.jsonl", "{\"text\": \"the fox\"}\n{\"text\": \"jumps\"}\n");
  const auto ready =
      directory.write("b.jsonl", "{\"text\": \"" + begin + "the fox" + end + "\"}\n{\"text\": \"" +
                                     begin + "jumps" + end + "\"}\n");
  CHECK(stored_ids(chunks(plain, 4)) == stored_ids(chunks(ready, 4)));
  CHECK(open_dataset(chunks(plain, 4))->stats().own_special_tokens.empty());
  check_contains(open_dataset(chunks(ready, 4))->stats().own_special_tokens,
                 "of 2 texts, 2 begin with the begin token " + begin + " and 2 end with");
}

TEST_CASE("Pairs stay samples of their own") {
  TempFolder directory;
  const auto path = directory.write("t.json", R"([{"prompt": "the", "completion": " fox"}])");
  const auto dataset = open_dataset(chunks(path, 64));
  CHECK(dataset->size() == 1);
  CHECK(dataset->stats().pairs);
  CHECK_FALSE(dataset->stats().chunked);
}

TEST_CASE("Texts that fill no window are an Error in version 1, which says what takes them") {
  TempFolder directory;
  const auto path = directory.write("t.jsonl", R"({"text": "the fox"})");
  DatasetOptions options = chunks(path, 64);
  options.version = 1;
  check_contains(
      error_of([&] { open_dataset(options); }),
      fmt::format("t.jsonl has {} tokens, a sample of 64 positions needs 65; --long-text cut makes "
                  "a sample of each text, however short",
                  document("the fox").size()));
}

TEST_CASE("A joined file without records, or with a bad one, is an Error as any") {
  TempFolder directory;
  check_contains(error_of([&] { open_dataset(chunks(directory.write("t.jsonl", "\n"), 4)); }),
                 "t.jsonl has no records");
  const auto bad = directory.write("t.jsonl", "{\"text\": \"a\"}\n{\"txt\": \"b\"}");
  check_contains(error_of([&] { open_dataset(chunks(bad, 4)); }), "t.jsonl:2: no field 'text'");
}

TEST_CASE("Records that are not valid are skipped on request, and the first ones are shown") {
  TempFolder directory;
  std::string text = "{\"txt\": \"of another format\"}\n";
  for (int i = 0; i < 1000; ++i) {
    text += i % 50 == 7 ? "{\"text\": " + std::to_string(i) + "}\n"
            : i == 12   ? "{\"text\": \n"
                        : "{\"text\": \"the fox\"}\n";
  }
  DatasetOptions options = chunks(directory.write("t.jsonl", text), 64);
  options.long_text = LongText::kTruncate;
  options.records.text_field = "text";
  check_contains(error_of([&] { open_dataset(options); }), "t.jsonl:1: no field 'text'");
  options.on_bad_record = OnBadRecord::kSkip;
  for (const size_t threads : {1, 3}) {
    options.num_threads = threads;
    const auto dataset = open_dataset(options);
    CHECK(dataset->size() == 1000 - 21);
    const DatasetStats stats = dataset->stats();
    CHECK(stats.bad_records == 22);
    REQUIRE(stats.first_bad_records.size() == 10);
    check_contains(stats.first_bad_records[0], "t.jsonl:1: no field 'text'");
    check_contains(stats.first_bad_records[1], "t.jsonl:9: ");
    check_contains(stats.first_bad_records[2], "t.jsonl:14:");
    CHECK(dataset->sample_name(0) == options.path.string() + ":2");
    CHECK(dataset->sample_name(7) == options.path.string() + ":10");
  }
  options.path = directory.write("t.jsonl", "{\"text\": 1}\n{\"text\": 2}\n");
  check_contains(error_of([&] { open_dataset(options); }),
                 "t.jsonl: none of 2 records is valid; the first ones:");
}

TEST_CASE("Any number of threads makes the same ids, and the same error") {
  TempFolder directory;
  std::string text;
  for (int i = 0; i < 5000; ++i)
    text += fmt::format("{{\"prompt\": \"the {}\", \"completion\": \" fox {}\"}}\n", i, i * i);
  DatasetOptions options = chunks(directory.write("t.jsonl", text), 64);
  const Ids alone = stored_ids(options);
  options.num_threads = 4;
  CHECK(stored_ids(options) == alone);
  CHECK(open_dataset(options)->size() == 5000);
  text += "{\"prompt\": \"a\"}\n" + text + "nothing\n";
  options.path = directory.write("t.jsonl", text);
  check_contains(error_of([&] { open_dataset(options); }), "t.jsonl:5001: ");
}

TEST_CASE("--max_train_samples: only the first records are read") {
  TempFolder directory;
  DatasetOptions options =
      chunks(directory.write("t.jsonl", "{\"text\": \"a\"}\n{\"text\": \"b\"}\nnothing\n"), 64);
  options.long_text = LongText::kTruncate;
  options.max_samples = 2;
  CHECK(open_dataset(options)->size() == 2);
}

}  // namespace zeroth::data::record_reader_test
