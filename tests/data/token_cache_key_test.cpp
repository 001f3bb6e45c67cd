#include "data/samples/token_cache.h"

#include <cstring>
#include <functional>
#include <set>

#include "tests/data/data_test_support.h"

namespace zeroth::data::token_cache_key_test {
namespace {

namespace fs = std::filesystem;

constexpr char kData[] = "{\"prompt\": \"the\", \"completion\": \" fox\"}\n";

}  // namespace

TEST_CASE("All that ids depend on changes the key, and nothing else does") {
  TempFolder directory;
  fs::copy(fixture("llama3"), directory / "model");
  const fs::path data = directory.write("t.jsonl", kData);
  RecordOptions records;
  int64_t vocab_size = 1000, seq_len = 64;
  int version = kDataVersion;
  std::optional<int64_t> max_samples;
  OnBadRecord on_bad_record = OnBadRecord::kFail;
  const auto key = [&] {
    const Tokenizer tokenizer = Tokenizer::load(directory / "model");
    return token_cache_key({.path = data,
                            .tokenizer = &tokenizer,
                            .seq_len = seq_len,
                            .vocab_size = vocab_size,
                            .records = records,
                            .model_dir = directory / "model",
                            .on_bad_record = on_bad_record,
                            .max_samples = max_samples,
                            .num_threads = 2,
                            .version = version});
  };
  const std::string before = key();
  CHECK(before.size() == 32);
  seq_len = 8;
  CHECK(key() == before);
  fs::last_write_time(data, fs::last_write_time(data) + std::chrono::hours(1));
  CHECK(key() == before);
  const std::vector<std::function<void()>> changes = {
      [&] {  // a byte of the data, with the same size and time
        const auto time = fs::last_write_time(data);
        directory.write("t.jsonl", std::string(kData).replace(std::strlen(kData) - 4, 1, "a"));
        fs::last_write_time(data, time);
      },
      [&] { std::ofstream(directory / "model/tokenizer.json", std::ios::app) << " "; },
      [&] { directory.write("model/chat_template.jinja", "{{ 1 }}"); },
      [&] { records.chat_template = directory.write("own.jinja", "{{ 1 }}"); },
      [&] { records.chat_template_kwargs = "{}"; },
      [&] { records.pairs_train_on = TrainOn::kAll; },
      [&] { records.chats_train_on = TrainOn::kAll; },
      [&] { records.separator = " "; },
      [&] { records.prompt_field = "prompt"; },
      [&] { ++vocab_size; },
      [&] { max_samples = 1; },
      [&] { on_bad_record = OnBadRecord::kSkip; },
      [&] { version = 2; }};
  std::set<std::string> keys = {before};
  for (const auto& change : changes) {
    change();
    CHECK(keys.insert(key()).second);
  }
}

TEST_CASE("Each byte of a large file counts") {
  TempFolder directory;
  const Tokenizer tokenizer = Tokenizer::load(fixture("llama3"));
  std::string text(size_t{40} << 20, 'x');
  const auto key = [&] {
    return token_cache_key({.path = directory.write("t.txt", text),
                            .tokenizer = &tokenizer,
                            .seq_len = 8,
                            .vocab_size = 1000,
                            .num_threads = 3});
  };
  const std::string before = key();
  CHECK(key() == before);
  for (const size_t at : {size_t{0}, size_t{17} << 20, text.size() - 1}) {
    text[at] = 'y';
    CHECK(key() != before);
    text[at] = 'x';
  }
}

}  // namespace zeroth::data::token_cache_key_test
