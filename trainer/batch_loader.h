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

// Step s takes positions s*B .. s*B+B-1 of the sample order, or those from where seek() begins.
// Where these have no sample, and behind the step's last one, micro-batches have fewer rows, and
// one that would have none has a single row that is not trained. The dataset is not owned.
class TrainLoader : public engine::Loader {
 public:
  // `stop` says whether this rank wants training to end, `save` whether it wants it to be saved.
  TrainLoader(
      const data::Dataset& dataset, data::SampleOrder order, data::Deal deal, uint64_t seed,
      std::function<bool()> stop = [] { return false; },
      std::function<bool()> save = [] { return false; });

  model::MicroBatch next() override;
  bool wants_end() override { return stop_(); }
  bool wants_save() override { return save_(); }

  std::optional<Position> position() const override { return position_; }
  void seek(const Position& position) override;

 private:
  const data::Dataset& dataset_;
  data::SampleOrder order_;
  data::Deal deal_;
  uint64_t seed_;
  std::function<bool()> stop_, save_;
  Position position_;
  int64_t micro_ = 0;           // next micro-batch of the step
  std::vector<int64_t> batch_;  // samples of the step's global batch
};

// One pass in file order over the first `num_samples`. Every rank gets rounds() micro-batches; what
// the last ones lack is filled up with rows that are not trained.
class EvalLoader : public engine::Loader {
 public:
  // deal.micro_steps is 1. `stop` says whether this rank wants the evaluation to end.
  EvalLoader(
      const data::Dataset& dataset, int64_t num_samples, data::Deal deal,
      std::function<bool()> stop = [] { return false; });

  int64_t rounds() const { return data::eval_rounds(num_samples_, deal_); }
  model::MicroBatch next() override;
  bool wants_end() override { return stop_(); }

 private:
  const data::Dataset& dataset_;
  int64_t num_samples_;
  data::Deal deal_;
  std::function<bool()> stop_;
  int64_t round_ = 0;
};

}  // namespace zeroth::trainer
