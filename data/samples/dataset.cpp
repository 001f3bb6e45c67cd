#include "data/samples/dataset.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "data/records/data_files.h"
#include "data/samples/record_reader.h"
#include "data/samples/token_windows.h"

namespace zeroth::data {
namespace {

// One sample per record of a file: a text, or a prompt and a completion, of which
// only the latter has labels.
class JsonlSamples : public Dataset {
 public:
  // `encoded` is the result of read_records for these options, not chunked.
  JsonlSamples(const DatasetOptions& options, EncodedRecords encoded)
      : path_(options.path.string()), seq_len_(options.seq_len), encoded_(std::move(encoded)) {}

  int64_t size() const override { return std::ssize(encoded_.records); }
  int64_t seq_len() const override { return seq_len_; }
  int64_t length(int64_t index) const override { return at(index).length; }
  DatasetStats stats() const override { return encoded_.stats; }

  std::string sample_name(int64_t index) const override {
    return fmt::format("{}:{}", path_, at(index).line);
  }

  void fill(int64_t index, std::span<int64_t> tokens, std::span<int64_t> targets) const override {
    const EncodedRecord& sample = at(index);
    ZEROTH_CHECK(std::ssize(tokens) >= sample.length && tokens.size() == targets.size(),
                 "{} tokens, {} targets, length {}", tokens.size(), targets.size(), sample.length);
    std::fill(tokens.begin() + sample.length, tokens.end(), encoded_.end_of_text);
    std::fill(targets.begin(), targets.end(), kIgnoreIndex);
    std::copy_n(encoded_.ids.begin() + sample.begin, sample.length, tokens.begin());
    for (int64_t i = 0; i < sample.length; ++i) {
      const int64_t next = sample.begin + i + 1;
      if (encoded_.trained[next]) targets[i] = encoded_.ids[next];
    }
  }

 private:
  const EncodedRecord& at(int64_t index) const {
    ZEROTH_CHECK(index >= 0 && index < size(), "sample {} of {}", index, size());
    return encoded_.records[index];
  }

  std::string path_;
  int64_t seq_len_;
  EncodedRecords encoded_;
};

std::unique_ptr<Dataset> open_records(const DatasetOptions& options) {
  EncodedRecords encoded = read_records(options);
  if (!encoded.stats.chunked) return std::make_unique<JsonlSamples>(options, std::move(encoded));
  return std::make_unique<TokenWindows>(options, chunked_tokens(std::move(encoded)));
}

}  // namespace

bool has_records(const std::filesystem::path& path) {
  return data_file_type(path).has_records();
}

std::unique_ptr<Dataset> open_dataset(const DatasetOptions& options) {
  ZEROTH_CHECK(options.seq_len >= 1 && options.vocab_size >= 1, "seq_len {}, vocab_size {}",
               options.seq_len, options.vocab_size);
  if (const std::string why = sample_file_error(options.path); !why.empty()) {
    throw Error("{}{}", options.path.string(), why);
  }
  if (has_records(options.path)) return open_records(options);
  if (!options.records.prompt_field.empty() || !options.records.completion_field.empty()) {
    throw Error("{}: --prompt-field and --completion-field are for .jsonl and other records",
                options.path.string());
  }
  return std::make_unique<TokenWindows>(options,
                                        data_file_type(options.path).format == DataFormat::kText
                                            ? read_text_tokens(options)
                                            : map_binary_tokens(options));
}

}  // namespace zeroth::data
