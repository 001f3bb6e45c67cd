// Hugging Face's schedules: those that are functions of the update, and the one that follows
// evaluations.
#pragma once

#include <cstdint>

#include "configs/hf_schedule.h"

namespace zeroth::optim {

// Returns the rate of update `update`, counted from 0, with the optimizer's rate `lr`:
// transformers' LambdaLR, by its formulas, bit for bit except for the library's cosine.
double hf_lr(const configs::HfSchedule& schedule, double lr, int64_t update);

// Plateau is torch's ReduceLROnPlateau: a rate that falls when evaluations stop improving.
class Plateau {
 public:
  // `lr` is the rate of the first update.
  Plateau(const configs::PlateauConfig& config, double lr);

  // PlateauState is what a checkpoint keeps of a Plateau.
  struct PlateauState {
    double rate = 0;
    double best = 0;
    int64_t num_bad = 0;   // consecutive evaluations without improvement
    int64_t cooldown = 0;  // evaluations that will not count as bad
    bool operator==(const PlateauState&) const = default;
  };
  const PlateauState& state() const { return state_; }
  void restore(const PlateauState& state) { state_ = state; }

  double rate() const { return state_.rate; }
  // Records the metric of the next evaluation. A NaN is no improvement.
  void record_evaluation(double metric);

 private:
  bool is_better(double metric) const;

  configs::PlateauConfig config_;
  PlateauState state_;
};

}  // namespace zeroth::optim
