// Plateau is torch's ReduceLROnPlateau: a rate that falls when evaluations stop improving.
#pragma once

#include <cstdint>

#include "configs/hf_schedule.h"

namespace zeroth::optim {

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
  void reduce();

  configs::PlateauConfig config_;
  PlateauState state_;
};

}  // namespace zeroth::optim
