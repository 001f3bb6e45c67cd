// From a dataset to what the engine asks for: this rank's micro-batches as tensors.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "data/batch.h"
#include "data/dataset.h"
#include "data/sample_order.h"
#include "engine/loader.h"

namespace zeroth::trainer {

// Callbacks of a run between micro-batches.
struct LoaderHooks {
  // Whether this rank requests that training, or an evaluation, ends; and that training is saved.
  std::function<bool()> wants_end = [] { return false; };
  std::function<bool()> wants_save = [] { return false; };
  // Called before a micro-batch is made, with its index in the step or the evaluation.
  std::function<void(int64_t micro_batch)> begins = [](int64_t) {};
};

// Step s takes positions s*B .. s*B+B-1 of the sample order, or those from where seek() begins.
// Where these have no sample, and behind the step's last one, micro-batches have fewer rows, and
// one that would have none has a single row that is not trained. The dataset is not owned.
class TrainLoader : public engine::Loader {
 public:
  TrainLoader(const data::Dataset& dataset, data::SampleOrder order, data::Deal deal, uint64_t seed,
              LoaderHooks hooks = {});

  model::MicroBatch next() override;
  std::optional<int64_t> count_positions(int64_t micro_batches) const override;
  bool wants_end() override { return hooks_.wants_end(); }
  bool wants_save() override { return hooks_.wants_save(); }

  std::optional<Position> position() const override { return position_; }
  void seek(const Position& position) override;

 private:
  // Of the next micro-batch.
  std::vector<int64_t> samples() const;
  void advance();

  const data::Dataset& dataset_;
  data::SampleOrder order_;
  data::Deal deal_;
  uint64_t seed_;
  LoaderHooks hooks_;
  Position position_;
  int64_t micro_ = 0;  // next micro-batch of the step
};

// One pass in file order over the first `num_samples`. Every rank gets rounds() micro-batches; what
// the last ones lack is filled up with rows that are not trained.
class EvalLoader : public engine::Loader {
 public:
  // deal.micro_steps is 1.
  EvalLoader(const data::Dataset& dataset, int64_t num_samples, data::Deal deal,
             LoaderHooks hooks = {});

  int64_t rounds() const { return data::eval_rounds(num_samples_, deal_); }
  model::MicroBatch next() override;
  bool wants_end() override { return hooks_.wants_end(); }

 private:
  const data::Dataset& dataset_;
  int64_t num_samples_;
  data::Deal deal_;
  LoaderHooks hooks_;
  int64_t round_ = 0;
};

}  // namespace zeroth::trainer
