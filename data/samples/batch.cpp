#include "data/samples/batch.h"

#include <algorithm>

namespace zeroth::data {
namespace {

int64_t length_multiple(int64_t longest, DeviceKind device) {
  if (device == DeviceKind::kCpu) return 8;  // alignment for matrix units
  return longest <= 2048 ? 64 : 128;
}

int64_t round_up_length(int64_t longest, const Dataset& dataset, DeviceKind device) {
  const int64_t multiple = length_multiple(longest, device);
  return std::min((longest + multiple - 1) / multiple * multiple, dataset.seq_len());
}

// What is behind the last sample of a row belongs to it.
void set_first_keys(const std::vector<int64_t>& sample_lengths, int64_t row, CollatedBatch& batch) {
  if (sample_lengths.size() == 1) return;
  batch.first_keys.resize(batch.tokens.size(), 0);
  const auto keys = std::span(batch.first_keys).subspan(row * batch.length, batch.length);
  int64_t begin = 0;
  for (const int64_t length : sample_lengths) {
    std::fill(keys.begin() + begin, keys.end(), begin);
    begin += length;
  }
}

}  // namespace

int64_t num_eval_batches(int64_t num_samples, const BatchPartition& partition) {
  return (num_samples + partition.global_batch() - 1) / partition.global_batch();
}

int64_t padded_length(const Dataset& dataset, std::span<const int64_t> samples, DeviceKind device) {
  int64_t longest = 1;
  for (const int64_t sample : samples) {
    if (sample != kNoSample) longest = std::max(longest, dataset.length(sample));
  }
  return round_up_length(longest, dataset, device);
}

int64_t max_row_length(const Dataset& dataset, DeviceKind device) {
  int64_t longest = 1;
  for (int64_t sample = 0; sample < dataset.size(); ++sample) {
    longest = std::max(longest, dataset.length(sample));
  }
  return round_up_length(longest, dataset, device);
}

CollatedBatch collate(const Dataset& dataset, std::span<const int64_t> samples, DeviceKind device) {
  CollatedBatch batch;
  batch.rows = std::ssize(samples);
  batch.length = padded_length(dataset, samples, device);
  batch.tokens.assign(batch.rows * batch.length, 0);
  batch.targets.assign(batch.rows * batch.length, kIgnoreIndex);
  batch.samples.assign(samples.begin(), samples.end());
  batch.row_tokens.resize(samples.size(), 0);
  for (int64_t row = 0; row < batch.rows; ++row) {
    if (samples[row] == kNoSample) continue;
    batch.row_tokens[row] = dataset.length(samples[row]);
    const int64_t begin = row * batch.length;
    dataset.fill(samples[row], std::span(batch.tokens).subspan(begin, batch.length),
                 std::span(batch.targets).subspan(begin, batch.length));
    set_first_keys(dataset.sample_lengths(samples[row]), row, batch);
  }
  return batch;
}

}  // namespace zeroth::data
