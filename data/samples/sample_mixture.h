// SampleMixture: several parts of a dataset, each with its share of the samples, as a pure
// function.
#pragma once

#include <cstdint>
#include <vector>

namespace zeroth::data {

// A MixturePart is consecutive samples, and their weight among all parts.
struct MixturePart {
  int64_t size = 0;  // at least 1
  double weight = 1;
};

// Of the first n samples, each part has its share within one sample: R. Tijdeman, The chairman
// assignment problem, Discrete Mathematics 32 (1980).
class SampleMixture {
 public:
  // Weights are positive, and exact to a millionth of their sum.
  explicit SampleMixture(std::vector<MixturePart> parts);

  struct Pick {
    size_t part = 0;
    int64_t index = 0;  // among the samples of the part that the mixture has taken, from 0
  };
  // Returns the sample at an index of the mixture, which has no end.
  Pick at(int64_t index) const;

  // Returns how many samples an epoch has: it ends when the first part at its share is used up.
  int64_t epoch_size() const { return epoch_size_; }

  const std::vector<MixturePart>& parts() const { return parts_; }

 private:
  void fill_period();

  std::vector<MixturePart> parts_;
  std::vector<int64_t> shares_;                // of each part in a period
  std::vector<uint32_t> part_at_;              // of each index of a period
  std::vector<uint32_t> rank_at_;              // of it among the indices of its part
  std::vector<std::vector<uint32_t>> places_;  // of each part, its indices
  int64_t epoch_size_ = 0;
};

}  // namespace zeroth::data
