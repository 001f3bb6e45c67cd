#include "data/samples/sample_order.h"

#include <algorithm>
#include <bit>
#include <functional>
#include <utility>

#include "base/error.h"
#include "base/hash.h"

namespace zeroth::data {
namespace {

constexpr int kRounds = 6;

uint64_t combine(uint64_t key, uint64_t value) {
  return mix64(key + kGolden * (value + 1));
}

// Applies a keyed permutation of [0, n) without a table: a Feistel network over the next power of
// four, repeated until the value is below n (under four tries on average).
uint64_t permute(uint64_t index, uint64_t n, uint64_t key) {
  const auto half_bits = std::max<uint64_t>(1, (std::bit_width(n - 1) + 1) / 2);
  const uint64_t half_mask = (uint64_t{1} << half_bits) - 1;
  do {
    uint64_t left = index >> half_bits;
    uint64_t right = index & half_mask;
    for (int round = 0; round < kRounds; ++round) {
      const uint64_t next = left ^ (combine(combine(key, round), right) & half_mask);
      left = right;
      right = next;
    }
    index = (left << half_bits) | right;
  } while (index >= n);
  return index;
}

}  // namespace

SampleOrder::SampleOrder(int64_t num_samples, uint64_t seed, bool shuffle,
                         const OrderExtent& extent, std::shared_ptr<const SampleMixture> mixture,
                         LengthGroups groups)
    : num_samples_(num_samples),
      seed_(seed),
      shuffle_(shuffle),
      extent_(extent),
      mixture_(std::move(mixture)),
      groups_(std::move(groups)) {
  ZEROTH_CHECK(std::min(extent.per_epoch, num_samples) >= 1, "{} of {} samples in an epoch",
               extent.per_epoch, num_samples);
  extent_.per_epoch = std::min(extent.per_epoch, mixture_ ? mixture_->epoch_size() : num_samples);
  extent_.positions = std::max(extent.positions, extent_.per_epoch);
}

int64_t SampleOrder::at(int64_t position) const {
  ZEROTH_CHECK(position >= 0, "position {}", position);
  const int64_t index = position % extent_.positions;
  if (position >= extent_.end || index >= extent_.per_epoch) return kNoSample;
  if (groups_.positions == 0) return ungrouped(position);
  const int64_t first = index / groups_.positions * groups_.positions;
  const int64_t begin = position - index + first;
  if (begin != group_begin_)
    sort_group(begin, std::min(groups_.positions, extent_.per_epoch - first));
  return group_[static_cast<size_t>(position - begin)];
}

void SampleOrder::sort_group(int64_t begin, int64_t count) const {
  group_.clear();
  for (int64_t i = 0; i < count; ++i) group_.push_back(ungrouped(begin + i));
  std::ranges::stable_sort(group_, std::greater(), groups_.length);
  group_begin_ = begin;
}

int64_t SampleOrder::ungrouped(int64_t position) const {
  const int64_t index = position % extent_.positions;
  if (mixture_) return mixed(position / extent_.positions * extent_.per_epoch + index);
  if (!shuffle_) return index;
  const auto epoch = static_cast<uint64_t>(position / extent_.positions);
  return static_cast<int64_t>(permute(static_cast<uint64_t>(index),
                                      static_cast<uint64_t>(num_samples_), combine(seed_, epoch)));
}

int64_t SampleOrder::mixed(int64_t index) const {
  const auto [part, taken] = mixture_->at(index);
  int64_t begin = 0;
  for (size_t i = 0; i < part; ++i) begin += mixture_->parts()[i].size;
  const int64_t size = mixture_->parts()[part].size;
  if (!shuffle_) return begin + taken % size;
  const uint64_t key = combine(combine(seed_, part), static_cast<uint64_t>(taken / size));
  return begin + static_cast<int64_t>(permute(static_cast<uint64_t>(taken % size),
                                              static_cast<uint64_t>(size), key));
}

std::vector<int64_t> SampleOrder::samples(int64_t position, int64_t count) const {
  std::vector<int64_t> samples;
  samples.reserve(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) samples.push_back(at(position + i));
  return samples;
}

std::vector<int64_t> choose_samples(int64_t count, int64_t num_chosen, uint64_t seed) {
  std::vector<int64_t> chosen;
  for (int64_t i = 0; i < num_chosen; ++i) {
    chosen.push_back(static_cast<int64_t>(
        permute(static_cast<uint64_t>(i), static_cast<uint64_t>(count), mix64(seed))));
  }
  std::ranges::sort(chosen);
  return chosen;
}

uint64_t sample_seed(uint64_t seed, int64_t step, int64_t index_in_batch) {
  return combine(combine(mix64(seed + kGolden), static_cast<uint64_t>(step)),
                 static_cast<uint64_t>(index_in_batch));
}

}  // namespace zeroth::data
