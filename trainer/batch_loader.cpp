#include "trainer/batch_loader.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace zeroth::trainer {
namespace {

static_assert(data::kIgnoreIndex == model::kIgnoreIndex);

torch::Tensor to_tensor(const std::vector<int64_t>& values, int64_t rows, int64_t length) {
  return torch::tensor(values, torch::kLong).view({rows, length});  // [rows, length]
}

model::MicroBatch to_micro_batch(data::CollatedBatch host) {
  model::MicroBatch batch;
  batch.tokens = to_tensor(host.tokens, host.rows, host.length);
  batch.targets = to_tensor(host.targets, host.rows, host.length);
  batch.samples = std::move(host.samples);
  if (host.first_keys.empty()) return batch;
  batch.first_keys = to_tensor(host.first_keys, host.rows, host.length);
  batch.positions = torch::arange(host.length) - batch.first_keys;
  return batch;
}

}  // namespace

TrainDataLoader::TrainDataLoader(const data::Dataset& dataset, data::SampleOrder order,
                                 data::BatchPartition partition, uint64_t seed, LoaderHooks hooks)
    : dataset_(dataset),
      order_(std::move(order)),
      partition_(partition),
      seed_(seed),
      hooks_(std::move(hooks)) {}

// Omits the rows past the end of the order, of an epoch or of the step, which are the last ones;
// returns at least one row.
std::vector<int64_t> TrainDataLoader::samples() const {
  const int64_t first = partition_.index(micro_, 0);
  const int64_t rows = std::clamp<int64_t>(partition_.samples() - first, 0, partition_.micro_batch);
  std::vector<int64_t> samples = order_.samples(position_.sample + first, rows);
  while (!samples.empty() && samples.back() == data::kNoSample) samples.pop_back();
  if (samples.empty()) samples.push_back(data::kNoSample);
  return samples;
}

void TrainDataLoader::advance() {
  if (++micro_ < partition_.micro_steps) return;
  micro_ = 0;
  ++position_.step;
  position_.sample += partition_.samples();
}

model::MicroBatch TrainDataLoader::next() {
  hooks_.on_micro_batch(micro_);
  model::MicroBatch batch = to_micro_batch(collate(dataset_, samples(), partition_.device));
  for (int64_t row = 0; row < batch.tokens.size(0); ++row) {
    const uint64_t seed = data::sample_seed(seed_, position_.step, partition_.index(micro_, row));
    batch.sample_seeds.push_back(static_cast<int64_t>(seed));
    const int64_t sample = batch.samples[static_cast<size_t>(row)];
    if (sample == data::kNoSample) continue;
    // The other samples of a packed row.
    for (size_t i = 1; i < dataset_.sample_lengths(sample).size(); ++i) {
      batch.sample_seeds.push_back(
          static_cast<int64_t>(data::sample_seed(seed, position_.step, static_cast<int64_t>(i))));
    }
  }
  advance();
  return batch;
}

std::optional<int64_t> TrainDataLoader::count_positions(int64_t micro_batches) const {
  TrainDataLoader ahead = *this;
  int64_t positions = 0;
  for (int64_t i = 0; i < micro_batches; ++i, ahead.advance()) {
    const std::vector<int64_t> rows = ahead.samples();
    positions += std::ssize(rows) * padded_length(dataset_, rows, partition_.device);
  }
  return positions;
}

void TrainDataLoader::seek(const Position& position) {
  ZEROTH_CHECK(micro_ == 0, "{} micro-batches of step {} are already loaded", micro_,
               position_.step);
  position_ = position;
}

EvalDataLoader::EvalDataLoader(const data::Dataset& dataset, int64_t num_samples,
                               data::BatchPartition partition, LoaderHooks hooks)
    : dataset_(dataset),
      num_samples_(num_samples),
      order_(num_samples, /*seed=*/0, /*shuffle=*/false, {.end = num_samples}),
      partition_(partition),
      hooks_(std::move(hooks)) {
  ZEROTH_CHECK(partition_.micro_steps == 1, "an evaluation accumulates {} micro-steps",
               partition_.micro_steps);
}

model::MicroBatch EvalDataLoader::next() {
  hooks_.on_micro_batch(next_batch_);
  const int64_t first = next_batch_++ * partition_.global_batch() + partition_.index(0, 0);
  const std::vector<int64_t> samples = order_.samples(first, partition_.micro_batch);
  return to_micro_batch(collate(dataset_, samples, partition_.device));
}

}  // namespace zeroth::trainer
