// SampleOrder: the sample at each position, as a pure function of seed and position. It depends on
// neither ranks nor state, so any world size sees the same global batches and a run resumes by its
// position.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <vector>

#include "data/samples/sample_mixture.h"

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

// LengthGroups sorts consecutive positions of an epoch by the lengths of their samples, so that a
// batch needs little padding: transformers' group_by_length.
struct LengthGroups {
  int64_t positions = 0;  // in a group, the longest sample first; 0: not grouped
  std::function<int64_t(int64_t sample)> length = {};
};

class SampleOrder {
 public:
  // Requires num_samples >= 1. Without shuffling every epoch is 0, 1, 2, ...; with it, each epoch
  // is another permutation.
  // With a mixture, whose parts follow each other, an epoch has its samples: those of a part that
  // one epoch leaves out come first in the next, and each pass over a part is another permutation.
  SampleOrder(int64_t num_samples, uint64_t seed, bool shuffle, const OrderExtent& extent = {},
              std::shared_ptr<const SampleMixture> mixture = nullptr, LengthGroups groups = {});

  // Returns the sample at a position among all positions of a run, or kNoSample. Not for several
  // threads at once.
  int64_t at(int64_t position) const;

  // Returns the samples at `count` positions from `position` on.
  std::vector<int64_t> samples(int64_t position, int64_t count) const;

 private:
  int64_t num_samples_;
  uint64_t seed_;
  bool shuffle_;
  OrderExtent extent_;
  std::shared_ptr<const SampleMixture> mixture_;
  LengthGroups groups_;
  mutable int64_t group_begin_ = -1;    // position of the first sample of `group_`
  mutable std::vector<int64_t> group_;  // samples of the group that was asked for last

  int64_t ungrouped(int64_t position) const;
  int64_t mixed(int64_t index) const;
  void sort_group(int64_t begin, int64_t count) const;
};

// Returns which of `count` samples are set apart for evaluation: `num_chosen` of them, drawn by the
// seed, in ascending order.
std::vector<int64_t> choose_samples(int64_t count, int64_t num_chosen, uint64_t seed);

// Returns a seed for random operations on one sample of one step.
uint64_t sample_seed(uint64_t seed, int64_t step, int64_t index_in_batch);

}  // namespace zeroth::data
