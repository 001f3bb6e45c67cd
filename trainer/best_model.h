// Which of a run's models is the best by its evaluations, as Hugging Face's Trainer keeps account.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

#include "trainer/flags/cadence.h"

namespace zeroth::trainer {

class BestModel {
 public:
  explicit BestModel(const Cadences& cadences)
      : tracked_(cadences.tracks_best), greater_(cadences.greater_is_better) {}

  // Whether the loss of the evaluation after `step` steps is better than all before it. Always
  // false where nobody asked for the best.
  bool evaluated(int64_t step, double loss);
  // The model of `step` stands in `folder`. Counts where it is the best so far.
  void saved(int64_t step, const std::filesystem::path& folder);

  std::optional<double> loss() const { return loss_; }
  std::optional<int64_t> step() const { return step_; }
  // The newest saved model that was the best when it was saved; empty: none.
  const std::filesystem::path& folder() const { return folder_; }
  // Of that model.
  std::optional<int64_t> saved_step() const { return saved_step_; }

 private:
  bool tracked_;
  bool greater_;
  std::optional<double> loss_;
  std::optional<int64_t> step_;
  std::optional<int64_t> saved_step_;
  std::filesystem::path folder_;
};

}  // namespace zeroth::trainer
