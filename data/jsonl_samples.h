// One sample per record, a line of a .jsonl file or an element of a .json file's array: a text, or
// a prompt and a completion of which only the latter is trained.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "data/dataset.h"
#include "data/sample_fields.h"

namespace zeroth::data {

class JsonlSamples : public Dataset {
 public:
  // Reads and encodes the whole file. Throws Error naming file, line and reason for a record that
  // is no sample, and if no sample is left.
  explicit JsonlSamples(const DatasetOptions& options);

  int64_t size() const override { return static_cast<int64_t>(samples_.size()); }
  int64_t seq_len() const override { return seq_len_; }
  int64_t length(int64_t index) const override;
  void fill(int64_t index, std::span<int64_t> tokens, std::span<int64_t> targets) const override;
  std::string name_of(int64_t index) const override;
  DatasetStats stats() const override { return stats_; }

 private:
  struct Sample {
    int64_t begin = 0;          // in ids_
    int32_t length = 0;         // positions; the sample has length + 1 ids
    int32_t first_trained = 0;  // positions before it are the prompt's
    int64_t line = 0;           // from 1
  };
  nlohmann::json parse(std::string_view text, int64_t line) const;
  void read(const DatasetOptions& options, std::string_view record, int64_t line);
  void choose(const DatasetOptions& options, const nlohmann::json& first_record);
  void add(const DatasetOptions& options, const nlohmann::json& object, int64_t line);
  void keep(std::vector<int32_t> ids, int64_t first_trained, int64_t line);
  const Sample& at(int64_t index) const;

  std::string path_;
  int64_t seq_len_;
  int32_t end_of_text_ = 0;
  bool begun_ = false;
  SampleFields fields_;
  std::vector<int32_t> ids_;
  std::vector<Sample> samples_;
  DatasetStats stats_;
};

}  // namespace zeroth::data
