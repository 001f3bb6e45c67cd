// A dataset whose content follows from the sample's number.
#pragma once

#include <algorithm>
#include <string>

#include "data/samples/dataset.h"

namespace zeroth::trainer {

// Sample i: 1 + i % seq_len positions of token i, target i + 1, all trained.
class CountingDataset : public data::Dataset {
 public:
  CountingDataset(int64_t size, int64_t seq_len) : size_(size), seq_len_(seq_len) {}

  int64_t size() const override { return size_; }
  int64_t seq_len() const override { return seq_len_; }
  int64_t length(int64_t index) const override { return 1 + index % seq_len_; }
  void fill(int64_t index, std::span<int64_t> tokens, std::span<int64_t> targets) const override {
    std::fill(tokens.begin(), tokens.end(), 0);
    std::fill(targets.begin(), targets.end(), data::kIgnoreIndex);
    std::fill_n(tokens.begin(), length(index), index);
    std::fill_n(targets.begin(), length(index), index + 1);
  }
  std::string sample_name(int64_t index) const override { return std::to_string(index); }
  data::DatasetStats stats() const override {
    data::DatasetStats stats;
    stats.samples = size_;
    for (int64_t i = 0; i < size_; ++i) stats.tokens += length(i);
    stats.num_label_tokens = stats.tokens;
    return stats;
  }

 private:
  int64_t size_;
  int64_t seq_len_;
};

}  // namespace zeroth::trainer
