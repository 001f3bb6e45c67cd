#include "trainer/batch_loader.h"

#include <span>
#include <utility>

#include "base/error.h"

namespace zeroth::trainer {
namespace {

static_assert(data::kUntrained == model::kUntrained);

torch::Tensor to_tensor(const std::vector<int64_t>& values, int64_t rows, int64_t length) {
  return torch::tensor(values, torch::kInt64).view({rows, length});  // [rows, length]
}

model::MicroBatch to_micro_batch(data::HostBatch host) {
  model::MicroBatch batch;
  batch.tokens = to_tensor(host.tokens, host.rows, host.length);
  batch.targets = to_tensor(host.targets, host.rows, host.length);
  batch.samples = std::move(host.samples);
  return batch;
}

// Without the rows past the end of the order or of an epoch, which stand last; at least one row.
std::span<const int64_t> without_rest(std::span<const int64_t> rows) {
  while (rows.size() > 1 && rows.back() == data::kNoSample) rows = rows.first(rows.size() - 1);
  return rows;
}

}  // namespace

TrainLoader::TrainLoader(const data::Dataset& dataset, data::SampleOrder order, data::Deal deal,
                         uint64_t seed, std::function<bool()> stop, std::function<bool()> save)
    : dataset_(dataset),
      order_(std::move(order)),
      deal_(deal),
      seed_(seed),
      stop_(std::move(stop)),
      save_(std::move(save)) {}

model::MicroBatch TrainLoader::next() {
  if (micro_ == 0) {
    batch_ = order_.samples(position_.sample, deal_.samples());
    batch_.resize(static_cast<size_t>(deal_.global_batch()), data::kNoSample);
  }
  const auto rows = without_rest(deal_.rows(batch_, micro_));
  model::MicroBatch batch = to_micro_batch(make_batch(dataset_, rows));
  for (int64_t row = 0; row < batch.tokens.size(0); ++row) {
    const uint64_t seed = data::sample_seed(seed_, position_.step, deal_.index(micro_, row));
    batch.row_seeds.push_back(static_cast<int64_t>(seed));
  }
  if (++micro_ == deal_.micro_steps) {
    micro_ = 0;
    ++position_.step;
    position_.sample += deal_.samples();
  }
  return batch;
}

void TrainLoader::seek(const Position& position) {
  ZEROTH_CHECK(micro_ == 0, "{} micro-batches of step {} are drawn", micro_, position_.step);
  position_ = position;
}

EvalLoader::EvalLoader(const data::Dataset& dataset, int64_t num_samples, data::Deal deal,
                       std::function<bool()> stop)
    : dataset_(dataset), num_samples_(num_samples), deal_(deal), stop_(std::move(stop)) {
  ZEROTH_CHECK(deal_.micro_steps == 1, "an evaluation accumulates {} micro-steps",
               deal_.micro_steps);
}

model::MicroBatch EvalLoader::next() {
  const auto samples = data::sequential_batch(num_samples_, round_++, deal_.global_batch());
  return to_micro_batch(make_batch(dataset_, deal_.rows(samples, 0)));
}

}  // namespace zeroth::trainer
