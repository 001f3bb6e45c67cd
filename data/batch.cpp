#include "data/batch.h"

#include <algorithm>

#include "base/error.h"

namespace zeroth::data {
namespace {

constexpr int64_t kLengthMultiple = 8;  // what matrix units like

int64_t padded(int64_t longest, const Dataset& dataset) {
  const int64_t rounded = (longest + kLengthMultiple - 1) / kLengthMultiple * kLengthMultiple;
  return std::min(rounded, dataset.seq_len());
}

}  // namespace

std::span<const int64_t> Deal::rows(std::span<const int64_t> batch, int64_t micro) const {
  ZEROTH_CHECK(std::ssize(batch) == global_batch(), "{} samples for a global batch of {}",
               batch.size(), global_batch());
  ZEROTH_CHECK(micro >= 0 && micro < micro_steps, "micro-step {} of {}", micro, micro_steps);
  return batch.subspan(index(micro, 0), micro_batch);
}

int64_t eval_rounds(int64_t num_samples, const Deal& deal) {
  return (num_samples + deal.global_batch() - 1) / deal.global_batch();
}

int64_t padded_length(const Dataset& dataset, std::span<const int64_t> samples) {
  int64_t longest = 1;
  for (const int64_t sample : samples) {
    if (sample != kNoSample) longest = std::max(longest, dataset.length(sample));
  }
  return padded(longest, dataset);
}

int64_t longest_row(const Dataset& dataset) {
  int64_t longest = 1;
  for (int64_t sample = 0; sample < dataset.size(); ++sample) {
    longest = std::max(longest, dataset.length(sample));
  }
  return padded(longest, dataset);
}

HostBatch make_batch(const Dataset& dataset, std::span<const int64_t> samples) {
  HostBatch batch;
  batch.rows = std::ssize(samples);
  batch.length = padded_length(dataset, samples);
  batch.tokens.assign(batch.rows * batch.length, 0);
  batch.targets.assign(batch.rows * batch.length, kUntrained);
  batch.samples.assign(samples.begin(), samples.end());
  for (int64_t row = 0; row < batch.rows; ++row) {
    if (samples[row] == kNoSample) continue;
    const int64_t begin = row * batch.length;
    dataset.fill(samples[row], std::span(batch.tokens).subspan(begin, batch.length),
                 std::span(batch.targets).subspan(begin, batch.length));
  }
  return batch;
}

}  // namespace zeroth::data
