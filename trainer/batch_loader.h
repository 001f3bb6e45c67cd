// Loaders that turn a dataset into what the engine requests: this rank's micro-batches as tensors.
#pragma once

#include <cstdint>
#include <functional>
#include <future>
#include <optional>
#include <utility>
#include <vector>

#include "data/samples/batch.h"
#include "data/samples/dataset.h"
#include "data/samples/sample_order.h"
#include "engine/loader.h"

namespace zeroth::trainer {

// Callbacks of a run between micro-batches.
struct LoaderHooks {
  // Return whether this rank requests that training, or an evaluation, stops; and that training is
  // saved.
  std::function<bool()> stop_requested = [] { return false; };
  std::function<bool()> save_requested = [] { return false; };
  // Called before a micro-batch is made, with its index in the step or the evaluation.
  std::function<void(int64_t micro_batch)> on_micro_batch = [](int64_t) {};
};

// A BatchPrefetcher collates the next micro-batch in a thread while the current one is computed.
class BatchPrefetcher {
 public:
  BatchPrefetcher(const data::Dataset& dataset, data::DeviceKind device)
      : dataset_(&dataset), device_(device) {}

  // Returns the batch of these samples: the one that start() began, if it is that. Rethrows what
  // its collation threw.
  data::CollatedBatch get(const std::vector<int64_t>& samples);
  // Begins to collate a batch.
  void start(std::vector<int64_t> samples);

  // Returns the seconds that get() has waited since the last call.
  double take_wait_s() { return std::exchange(wait_s_, 0); }

 private:
  const data::Dataset* dataset_;
  data::DeviceKind device_;
  std::vector<int64_t> samples_;           // of `next_`
  std::future<data::CollatedBatch> next_;  // not valid: none
  double wait_s_ = 0;
};

// TrainDataLoader makes the micro-batches of step s from positions s*B .. s*B+B-1 of the sample
// order, or from the position set by seek(). Micro-batches have fewer rows where the order has no
// sample, and after the step's last sample; a micro-batch without a sample has a single row without
// labels. The dataset is not owned.
class TrainDataLoader : public engine::DataLoader {
 public:
  TrainDataLoader(const data::Dataset& dataset, data::SampleOrder order,
                  data::BatchPartition partition, uint64_t seed, LoaderHooks hooks = {});

  model::MicroBatch next() override;
  std::optional<int64_t> count_positions(int64_t micro_batches) const override;
  bool stop_requested() override { return hooks_.stop_requested(); }
  bool save_requested() override { return hooks_.save_requested(); }

  std::optional<Position> position() const override { return cursor_.position; }
  void seek(const Position& position) override;

  // Returns the seconds for which next() has waited for data since the last call.
  double take_wait_s() { return prefetcher_.take_wait_s(); }

 private:
  // A Cursor is a micro-batch: its step, and its index in that.
  struct Cursor {
    Position position;
    int64_t micro = 0;
  };

  std::vector<int64_t> samples(const Cursor& cursor) const;
  void advance(Cursor& cursor) const;

  const data::Dataset& dataset_;
  data::SampleOrder order_;
  data::BatchPartition partition_;
  uint64_t seed_;
  LoaderHooks hooks_;
  Cursor cursor_;  // of the next micro-batch
  BatchPrefetcher prefetcher_;
};

// EvalDataLoader makes one pass in file order over the first `num_samples`. Every rank gets
// num_batches() micro-batches; missing rows of the last ones are filled with rows without labels.
class EvalDataLoader : public engine::DataLoader {
 public:
  // Requires that partition.micro_steps is 1.
  EvalDataLoader(const data::Dataset& dataset, int64_t num_samples, data::BatchPartition partition,
                 LoaderHooks hooks = {});

  int64_t num_batches() const { return data::num_eval_batches(num_samples_, partition_); }
  model::MicroBatch next() override;
  bool stop_requested() override { return hooks_.stop_requested(); }

 private:
  std::vector<int64_t> samples(int64_t batch) const;

  int64_t num_samples_;
  data::SampleOrder order_;
  data::BatchPartition partition_;
  LoaderHooks hooks_;
  int64_t next_batch_ = 0;
  BatchPrefetcher prefetcher_;
};

}  // namespace zeroth::trainer
