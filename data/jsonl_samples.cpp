#include "data/jsonl_samples.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace zeroth::data {

JsonlSamples::JsonlSamples(const DatasetOptions& options, EncodedRecords read)
    : path_(options.path.string()), seq_len_(options.seq_len), read_(std::move(read)) {}

const EncodedRecord& JsonlSamples::at(int64_t index) const {
  ZEROTH_CHECK(index >= 0 && index < size(), "sample {} of {}", index, size());
  return read_.records[index];
}

int64_t JsonlSamples::length(int64_t index) const {
  return at(index).length;
}

void JsonlSamples::fill(int64_t index, std::span<int64_t> tokens,
                        std::span<int64_t> targets) const {
  const EncodedRecord& sample = at(index);
  ZEROTH_CHECK(std::ssize(tokens) >= sample.length && tokens.size() == targets.size(),
               "{} tokens, {} targets, length {}", tokens.size(), targets.size(), sample.length);
  std::fill(tokens.begin() + sample.length, tokens.end(), read_.end_of_text);
  std::fill(targets.begin(), targets.end(), kUntrained);
  const int32_t* const ids = read_.ids.data() + sample.begin;
  std::copy_n(ids, sample.length, tokens.begin());
  std::copy(ids + 1 + sample.first_trained, ids + 1 + sample.length,
            targets.begin() + sample.first_trained);
}

std::string JsonlSamples::name_of(int64_t index) const {
  return fmt::format("{}:{}", path_, at(index).line);
}

}  // namespace zeroth::data
