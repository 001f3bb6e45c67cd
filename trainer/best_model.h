// Which of a run's models is the best by its evaluations, as Hugging Face's Trainer keeps account.
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

  // Whether the loss of the evaluation after `step` steps is better than all before it. Always
  // false where nobody asked for the best.
  bool observe_evaluation(int64_t step, double loss);
  // The model of `step` stands in `directory`. Counts where it is the best so far.
  void observe_checkpoint(int64_t step, const std::filesystem::path& directory);

  std::optional<double> loss() const { return state_.loss; }
  std::optional<int64_t> step() const { return state_.step; }
  // The newest saved model that was the best when it was saved; empty: none.
  const std::filesystem::path& directory() const { return state_.directory; }
  // Of that model.
  std::optional<int64_t> saved_step() const { return state_.saved_step; }

  // What a run that goes on takes over.
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

// What a run that resumes looks for.
struct BestModelQuery {
  std::vector<std::filesystem::path> directories;  // of checkpoints, the first one first
  BestModel::TrackedState previous;                // as the run before knew it
  bool greater_is_better = false;
  int64_t step = 0;  // after which the run resumes
};
struct BestModelResult {
  BestModel::TrackedState state;  // empty: the best of what follows will count
  std::string warning = {};       // empty: it is where it was
};
// The best model of the run before, by the folders' checkpoints as they are now; where its own is
// gone, the best one of those that are there, by the evaluations in `history` (report/history.h).
BestModelResult find_best_model(const BestModelQuery& query, const std::string& history);

}  // namespace zeroth::trainer
