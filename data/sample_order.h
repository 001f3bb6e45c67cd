// Which sample stands where: a pure function of seed and position. It knows neither ranks nor
// state, so any world size sees the same global batches and a run goes on by its position.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

namespace zeroth::data {

// Stands in a list of samples for a row that only fills up a ragged batch.
inline constexpr int64_t kNoSample = -1;

// How far an order goes and how its epochs lie.
struct OrderExtent {
  static constexpr int64_t kEndless = std::numeric_limits<int64_t>::max();

  int64_t end = kEndless;        // from this position on there is no sample
  int64_t per_epoch = kEndless;  // samples of an epoch, at least 1; beyond num_samples: all
  int64_t positions =
      0;  // that an epoch takes: the last ones have no sample; 0: as many as samples
};

class SampleOrder {
 public:
  // num_samples >= 1. Without shuffling every epoch is 0, 1, 2, ...; with it, each epoch is another
  // permutation.
  SampleOrder(int64_t num_samples, uint64_t seed, bool shuffle, const OrderExtent& extent = {});

  // The sample at a position among all that a run takes, or kNoSample.
  int64_t at(int64_t position) const;

  // Those at `count` positions from this one on.
  std::vector<int64_t> samples(int64_t position, int64_t count) const;

 private:
  int64_t num_samples_;
  uint64_t seed_;
  bool shuffle_;
  OrderExtent extent_;
};

// The global batch of an evaluation pass: samples batch_index*batch ... in file order, kNoSample
// past the end.
std::vector<int64_t> sequential_batch(int64_t num_samples, int64_t batch_index,
                                      int64_t global_batch);

// A seed for random operations on one sample of one step.
uint64_t sample_seed(uint64_t seed, int64_t step, int64_t index_in_batch);

}  // namespace zeroth::data
