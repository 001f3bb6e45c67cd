// Intervals at which a run evaluates, saves or logs its loss, as flags set them, and the use of the
// best model.
#pragma once

#include <cstdint>
#include <optional>

namespace zeroth::trainer {

struct Interval {
  enum class Mode {
    kNever,
    kSteps,   // every `every` steps
    kEpochs,  // at the end of each epoch
    kBest     // if an evaluation is better than all before it
  };
  Mode mode = Mode::kNever;
  double every = 0;  // a whole number; below 1: that fraction of all steps of the run
  double from = 0;   // first step at which it is due; first epoch with kEpochs

  bool is_on() const { return mode != Mode::kNever; }
  bool operator==(const Interval&) const = default;
};

struct Intervals {
  Interval evaluate;
  Interval save;
  Interval log = {Interval::Mode::kSteps, 500};  // into trainer_state.json
  bool evaluate_first = false;                   // --eval_on_start: before the first step
  bool log_first = false;                        // --logging_first_step
  bool log_given = false;                        // a flag sets `log`
  std::optional<int64_t> save_total_limit;       // checkpoints to keep; unset: all of them
  // Evaluations are compared if tracks_best is set: the lower loss is better, or the greater one.
  bool tracks_best = false;
  bool greater_is_better = false;
  bool ends_with_best = false;  // --load_best_model_at_end: --output gets the best model
};

}  // namespace zeroth::trainer
