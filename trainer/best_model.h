// The best model of a run by its evaluations, tracked as Hugging Face's Trainer does.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "trainer/flags/interval.h"

namespace zeroth::trainer {

class BestModel {
 public:
  explicit BestModel(const Intervals& intervals)
      : tracked_(intervals.tracks_best), greater_(intervals.greater_is_better) {}

  // Returns whether the loss of the evaluation after `step` steps is better than all before it.
  // Returns false if no flag requests the best model.
  bool observe_evaluation(int64_t step, double loss);
  // Records that the model of `step` is saved in `directory`. Has no effect unless it is the best
  // so far.
  void observe_checkpoint(int64_t step, const std::filesystem::path& directory);

  std::optional<double> loss() const { return state_.loss; }
  std::optional<int64_t> step() const { return state_.step; }
  // The newest saved model that was the best when it was saved; empty: none.
  const std::filesystem::path& directory() const { return state_.directory; }
  // Returns the step of the model in directory().
  std::optional<int64_t> saved_step() const { return state_.saved_step; }

  // State that a resumed run restores.
  struct TrackedState {
    std::optional<double> loss;
    std::optional<int64_t> step;
    std::optional<int64_t> saved_step;
    std::filesystem::path directory;
  };
  const TrackedState& state() const { return state_; }
  void restore(TrackedState state) { state_ = std::move(state); }

 private:
  bool tracked_;
  bool greater_;
  TrackedState state_;
};

// Query of a resumed run for its best model.
struct BestModelQuery {
  std::vector<std::filesystem::path> directories;  // of checkpoints, the preferred one first
  BestModel::TrackedState previous;                // as the previous run saved it
  bool greater_is_better = false;
  int64_t step = 0;  // step after which the run resumes
};
struct BestModelResult {
  BestModel::TrackedState state;  // empty: the best of later evaluations will count
  std::string warning = {};       // empty: the model is where it was
};
// Returns the best model of the previous run, located among the checkpoints that exist now. If that
// model is gone, returns the best existing one by the evaluations in `history` (report/history.h).
BestModelResult find_best_model(const BestModelQuery& query, const std::string& history);

}  // namespace zeroth::trainer
