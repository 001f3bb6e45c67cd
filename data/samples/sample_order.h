// SampleOrder: the sample at each position, as a pure function of seed and position. It depends on
// neither ranks nor state, so any world size sees the same global batches and a run resumes by its
// position.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

namespace zeroth::data {

// Marks a row of a list of samples that only pads an incomplete batch.
inline constexpr int64_t kNoSample = -1;

// OrderExtent is the length of an order and the layout of its epochs.
struct OrderExtent {
  static constexpr int64_t kEndless = std::numeric_limits<int64_t>::max();

  int64_t end = kEndless;        // first position without a sample
  int64_t per_epoch = kEndless;  // samples of an epoch, at least 1; above num_samples: all
  int64_t positions =
      0;  // positions of an epoch: the last ones have no sample; 0: as many as samples
};

class SampleOrder {
 public:
  // Requires num_samples >= 1. Without shuffling every epoch is 0, 1, 2, ...; with it, each epoch
  // is another permutation.
  SampleOrder(int64_t num_samples, uint64_t seed, bool shuffle, const OrderExtent& extent = {});

  // Returns the sample at a position among all positions of a run, or kNoSample.
  int64_t at(int64_t position) const;

  // Returns the samples at `count` positions from `position` on.
  std::vector<int64_t> samples(int64_t position, int64_t count) const;

 private:
  int64_t num_samples_;
  uint64_t seed_;
  bool shuffle_;
  OrderExtent extent_;
};

// Returns a seed for random operations on one sample of one step.
uint64_t sample_seed(uint64_t seed, int64_t step, int64_t index_in_batch);

}  // namespace zeroth::data
