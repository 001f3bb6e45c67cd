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
  struct State {
    double rate = 0;
    double best = 0;
    int64_t bad = 0;       // evaluations in a row that were no better
    int64_t cooldown = 0;  // evaluations that will not count as bad
    bool operator==(const State&) const = default;
  };
  const State& state() const { return state_; }
  void restore(const State& state) { state_ = state; }

  double rate() const { return state_.rate; }
  // The next evaluation came to `metric`. One that is not a number is no improvement.
  void evaluated(double metric);

 private:
  bool is_better(double metric) const;
  void reduce();

  configs::PlateauConfig config_;
  State state_;
};

}  // namespace zeroth::optim
