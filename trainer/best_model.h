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
  // Locates the restored best model among the checkpoints that exist now in `directories`, the
  // preferred one first. If that model is gone, tracks the best existing one up to `step` by the
  // evaluations in `history` (report/history.h), or none, so that the best of later evaluations
  // will count. Returns a warning about that; empty: the model is where it was.
  std::string locate(const std::vector<std::filesystem::path>& directories, int64_t step,
                     const std::string& history);

 private:
  bool is_better(double loss) const;

  bool tracked_;
  bool greater_;
  TrackedState state_;
};

}  // namespace zeroth::trainer
