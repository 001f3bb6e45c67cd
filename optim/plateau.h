// A rate that falls when evaluations stop getting better: torch's ReduceLROnPlateau.
#pragma once

#include <cstdint>

#include "configs/hf_schedule.h"

namespace zeroth::optim {

class Plateau {
 public:
  // `lr`: the rate of the first update.
  Plateau(const configs::PlateauConfig& config, double lr);

  // What a checkpoint keeps of it.
  struct PlateauState {
    double rate = 0;
    double best = 0;
    int64_t num_bad = 0;   // evaluations in a row that were no better
    int64_t cooldown = 0;  // evaluations that will not count as bad
    bool operator==(const PlateauState&) const = default;
  };
  const PlateauState& state() const { return state_; }
  void restore(const PlateauState& state) { state_ = state; }

  double rate() const { return state_.rate; }
  // The next evaluation came to `metric`. One that is not a number is no improvement.
  void record_evaluation(double metric);

 private:
  bool is_better(double metric) const;
  void reduce();

  configs::PlateauConfig config_;
  PlateauState state_;
};

}  // namespace zeroth::optim
