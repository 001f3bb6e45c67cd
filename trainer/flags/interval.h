// When a run evaluates, saves or notes its loss on the way, as flags say it, and what becomes of
// the best of its models.
#pragma once

#include <cstdint>
#include <optional>

namespace zeroth::trainer {

struct Interval {
  enum class Mode {
    kNever,
    kSteps,   // every `every` steps
    kEpochs,  // at the end of each epoch
    kBest     // where an evaluation was better than all before it
  };
  Mode mode = Mode::kNever;
  double every = 0;  // a whole number; below 1: that part of all steps of the run
  double from = 0;   // not before so many steps, with kEpochs epochs

  bool is_on() const { return mode != Mode::kNever; }
  bool operator==(const Interval&) const = default;
};

struct Intervals {
  Interval evaluate;
  Interval save;
  Interval log = {Interval::Mode::kSteps, 500};  // into trainer_state.json
  bool evaluate_first = false;                   // --eval_on_start: before the first step
  bool log_first = false;                        // --logging_first_step
  bool log_given = false;                        // a flag says when
  std::optional<int64_t> kept;                   // saved on the way; unset: all of them
  // Evaluations are compared: the lower loss is better, or the greater.
  bool tracks_best = false;
  bool greater_is_better = false;
  bool ends_with_best = false;  // --load_best_model_at_end: --output gets the best model
};

}  // namespace zeroth::trainer
