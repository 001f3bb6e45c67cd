// What the engine asks of a data source.
#pragma once

#include <cstdint>
#include <optional>

#include "base/error.h"
#include "model/micro_batch.h"

namespace zeroth::engine {

class Loader {
 public:
  virtual ~Loader() = default;

  // Ranks return different samples: the global batch is dealt over ranks and micro-batches, and the
  // same samples make the same step whatever the split (data::BatchPartition does it for datasets).
  // This rank's next micro-batch: tokens, targets (kIgnoreIndex where not trained), row_seeds and
  // samples filled, tensors on the CPU. Called gradient_accumulation_steps times per step, on the
  // thread that called the engine, each time when the micro-batch before has been used. May throw.
  virtual model::MicroBatch next() = 0;

  // The number of elements of `tokens` in the next `micro_batches` micro-batches together; none
  // where the loader does not know it before it makes them. Called before the first step. Without a
  // number all micro-batches of that step count as large as its first one: losses have the same
  // bits in fp32 and bf16, and gradients of fp16 lie elsewhere in its narrow range.
  virtual std::optional<int64_t> count_positions(int64_t /*micro_batches*/) const {
    return std::nullopt;
  }

  // Should training, or an evaluation, end? What one rank says becomes StepStats::stop_requested,
  // or EvalStats::stop_requested, on all of them. Asked once a step, after backward, and between
  // the blocks of an evaluation.
  virtual bool stop_requested() { return false; }

  // Should the run be saved after this step? What one rank says becomes StepStats::save_requested
  // on all of them. Asked when stop_requested() is, in training.
  virtual bool save_requested() { return false; }

  // How many steps there were, and where in the order of samples the next one begins.
  struct Position {
    int64_t step = 0;
    int64_t sample = 0;
    bool operator==(const Position&) const = default;
  };
  // Between two steps, the same on all ranks; none where the loader cannot tell, and so cannot
  // seek().
  virtual std::optional<Position> position() const { return std::nullopt; }
  // The next batch is that of a step that begins there. Not within a step.
  virtual void seek(const Position&) { throw Error("this loader has no position to seek"); }
};

}  // namespace zeroth::engine
