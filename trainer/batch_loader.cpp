#include "trainer/batch_loader.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/machine/timer.h"

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
  const bool is_padded =
      std::ranges::any_of(host.row_tokens, [&](int64_t tokens) { return tokens < host.length; });
  if (is_padded)
    batch.attention_mask =
        torch::arange(host.length).lt(torch::tensor(host.row_tokens).unsqueeze(1));
  if (host.first_keys.empty()) return batch;
  batch.first_keys = to_tensor(host.first_keys, host.rows, host.length);
  batch.positions = torch::arange(host.length) - batch.first_keys;
  return batch;
}

}  // namespace

data::CollatedBatch BatchPrefetcher::get(const std::vector<int64_t>& samples) {
  if (!next_.valid() || samples_ != samples) start(samples);
  const Timer timer;
  data::CollatedBatch batch = next_.get();
  wait_s_ += timer.seconds();
  return batch;
}

void BatchPrefetcher::start(std::vector<int64_t> samples) {
  samples_ = std::move(samples);
  next_ = std::async(std::launch::async, [dataset = dataset_, device = device_, of = samples_] {
    return collate(*dataset, of, device);
  });
}

TrainDataLoader::TrainDataLoader(const data::Dataset& dataset, data::SampleOrder order,
                                 data::BatchPartition partition, uint64_t seed, LoaderHooks hooks)
    : dataset_(dataset),
      order_(std::move(order)),
      partition_(partition),
      seed_(seed),
      hooks_(std::move(hooks)),
      prefetcher_(dataset, partition.device) {}

// Omits the rows past the end of the order, of an epoch or of the step, which are the last ones;
// returns at least one row.
std::vector<int64_t> TrainDataLoader::samples(const Cursor& cursor) const {
  const int64_t first = partition_.index(cursor.micro, 0);
  const int64_t rows = std::clamp<int64_t>(partition_.samples() - first, 0, partition_.micro_batch);
  std::vector<int64_t> samples = order_.samples(cursor.position.sample + first, rows);
  while (!samples.empty() && samples.back() == data::kNoSample) samples.pop_back();
  if (samples.empty()) samples.push_back(data::kNoSample);
  return samples;
}

void TrainDataLoader::advance(Cursor& cursor) const {
  if (++cursor.micro < partition_.micro_steps) return;
  cursor.micro = 0;
  ++cursor.position.step;
  cursor.position.sample += partition_.samples();
}

model::MicroBatch TrainDataLoader::next() {
  hooks_.on_micro_batch(cursor_.micro);
  model::MicroBatch batch = to_micro_batch(prefetcher_.get(samples(cursor_)));
  const int64_t step = cursor_.position.step;
  for (int64_t row = 0; row < batch.tokens.size(0); ++row) {
    const uint64_t seed = data::sample_seed(seed_, step, partition_.index(cursor_.micro, row));
    batch.sample_seeds.push_back(static_cast<int64_t>(seed));
    const int64_t sample = batch.samples[static_cast<size_t>(row)];
    if (sample == data::kNoSample) continue;
    // The other samples of a packed row.
    for (size_t i = 1; i < dataset_.sample_lengths(sample).size(); ++i) {
      batch.sample_seeds.push_back(
          static_cast<int64_t>(data::sample_seed(seed, step, static_cast<int64_t>(i))));
    }
  }
  advance(cursor_);
  prefetcher_.start(samples(cursor_));
  return batch;
}

std::optional<int64_t> TrainDataLoader::count_positions(int64_t micro_batches) const {
  Cursor ahead = cursor_;
  int64_t positions = 0;
  for (int64_t i = 0; i < micro_batches; ++i, advance(ahead)) {
    const std::vector<int64_t> rows = samples(ahead);
    positions += std::ssize(rows) * padded_length(dataset_, rows, partition_.device);
  }
  return positions;
}

void TrainDataLoader::seek(const Position& position) {
  ZEROTH_CHECK(cursor_.micro == 0, "{} micro-batches of step {} are already loaded", cursor_.micro,
               cursor_.position.step);
  cursor_.position = position;
  prefetcher_.start(samples(cursor_));
}

EvalDataLoader::EvalDataLoader(const data::Dataset& dataset, int64_t num_samples,
                               data::BatchPartition partition, LoaderHooks hooks)
    : num_samples_(num_samples),
      order_(num_samples, /*seed=*/0, /*shuffle=*/false, {.end = num_samples}),
      partition_(partition),
      hooks_(std::move(hooks)),
      prefetcher_(dataset, partition.device) {
  ZEROTH_CHECK(partition_.micro_steps == 1, "an evaluation accumulates {} micro-steps",
               partition_.micro_steps);
}

std::vector<int64_t> EvalDataLoader::samples(int64_t batch) const {
  return order_.samples(batch * partition_.global_batch() + partition_.index(0, 0),
                        partition_.micro_batch);
}

model::MicroBatch EvalDataLoader::next() {
  hooks_.on_micro_batch(next_batch_);
  model::MicroBatch batch = to_micro_batch(prefetcher_.get(samples(next_batch_)));
  if (++next_batch_ < num_batches()) prefetcher_.start(samples(next_batch_));
  return batch;
}

}  // namespace zeroth::trainer
