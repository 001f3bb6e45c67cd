// JsonlSamples: one sample per record of a .jsonl or .json file: a text, or a prompt and a
// completion, of which only the latter has labels.
#pragma once

#include <string>

#include "data/samples/dataset.h"
#include "data/samples/record_reader.h"

namespace zeroth::data {

class JsonlSamples : public Dataset {
 public:
  // `encoded` is the result of read_records for these options, not packed.
  JsonlSamples(const DatasetOptions& options, EncodedRecords encoded);

  int64_t size() const override { return std::ssize(encoded_.records); }
  int64_t seq_len() const override { return seq_len_; }
  int64_t length(int64_t index) const override;
  void fill(int64_t index, std::span<int64_t> tokens, std::span<int64_t> targets) const override;
  std::string sample_name(int64_t index) const override;
  DatasetStats stats() const override { return encoded_.stats; }

 private:
  const EncodedRecord& at(int64_t index) const;

  std::string path_;
  int64_t seq_len_;
  EncodedRecords encoded_;
};

}  // namespace zeroth::data
