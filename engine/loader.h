// Interface of a data source for the engine.
#pragma once

#include <cstdint>
#include <optional>

#include "base/error.h"
#include "model/micro_batch.h"

namespace zeroth::engine {

class DataLoader {
 public:
  virtual ~DataLoader() = default;

  // Returns this rank's next micro-batch: tokens, targets (kIgnoreIndex if not a label),
  // sample_seeds and samples are set, tensors are on the CPU. Ranks return different samples: the
  // loader partitions the global batch over ranks and micro-batches, so that the same samples make
  // the same step with any partition (data::BatchPartition does it for datasets). The engine calls
  // it gradient_accumulation_steps times per step, on its caller's thread, and copies the tensors:
  // the loader may use their memory again. With the schedule 1F1B each call follows the use of the
  // previous micro-batch; breadth-first, all calls come while the first block runs; in a pipeline
  // some calls come earlier. May throw.
  virtual model::MicroBatch next() = 0;

  // Returns the number of elements of `tokens` in the next `micro_batches` micro-batches together;
  // nullopt if the loader does not know it in advance. Called before the first step. Without a
  // number the engine assumes that all micro-batches of that step are as large as the first one:
  // losses have the same bits in fp32 and bf16, and fp16 gradients are elsewhere in its narrow
  // range.
  virtual std::optional<int64_t> count_positions(int64_t /*micro_batches*/) const {
    return std::nullopt;
  }

  // Returns whether this rank requests that training, or an evaluation, stop. One rank's request
  // sets StepDecision::stop_requested, or EvalStats::stop_requested, on all. Called once per step,
  // after backward, and between the micro-batches of an evaluation.
  virtual bool stop_requested() { return false; }

  // Returns whether this rank requests that the run be saved after this step. One rank's request
  // sets StepDecision::save_requested on all. Called together with stop_requested(), in training
  // only.
  virtual bool save_requested() { return false; }

  // Position is the number of completed steps, and the index in the sample order at which the next
  // step begins.
  struct Position {
    int64_t step = 0;
    int64_t sample = 0;
    bool operator==(const Position&) const = default;
  };
  // Returns the position between two steps, the same on all ranks; nullopt if the loader has none,
  // and so does not support seek().
  virtual std::optional<Position> position() const { return std::nullopt; }
  // Moves to a position: the next batch is that of a step that begins there. Do not call it within
  // a step.
  virtual void seek(const Position&) { throw Error("this loader has no position to seek"); }
};

}  // namespace zeroth::engine
