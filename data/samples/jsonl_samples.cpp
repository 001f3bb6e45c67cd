#include "data/samples/jsonl_samples.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace zeroth::data {

JsonlSamples::JsonlSamples(const DatasetOptions& options, EncodedRecords encoded)
    : path_(options.path.string()), seq_len_(options.seq_len), encoded_(std::move(encoded)) {}

const EncodedRecord& JsonlSamples::at(int64_t index) const {
  ZEROTH_CHECK(index >= 0 && index < size(), "sample {} of {}", index, size());
  return encoded_.records[index];
}

int64_t JsonlSamples::length(int64_t index) const {
  return at(index).length;
}

void JsonlSamples::fill(int64_t index, std::span<int64_t> tokens,
                        std::span<int64_t> targets) const {
  const EncodedRecord& sample = at(index);
  ZEROTH_CHECK(std::ssize(tokens) >= sample.length && tokens.size() == targets.size(),
               "{} tokens, {} targets, length {}", tokens.size(), targets.size(), sample.length);
  std::fill(tokens.begin() + sample.length, tokens.end(), encoded_.end_of_text);
  std::fill(targets.begin(), targets.end(), kIgnoreIndex);
  const int32_t* const ids = encoded_.ids.data() + sample.begin;
  std::copy_n(ids, sample.length, tokens.begin());
  std::copy(ids + 1 + sample.first_label, ids + 1 + sample.length,
            targets.begin() + sample.first_label);
}

std::string JsonlSamples::sample_name(int64_t index) const {
  return fmt::format("{}:{}", path_, at(index).line);
}

}  // namespace zeroth::data
