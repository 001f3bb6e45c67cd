// A rate that falls when evaluations stop getting better: torch's ReduceLROnPlateau.
#pragma once

#include <cstdint>

#include "configs/hf_schedule.h"

namespace zeroth::optim {

class Plateau {
 public:
  // `lr`: the rate of the first update.
  Plateau(const configs::PlateauConfig& config, double lr);

  double rate() const { return rate_; }
  // The next evaluation came to `metric`. One that is not a number is no improvement.
  void evaluated(double metric);

 private:
  bool is_better(double metric) const;
  void reduce();

  configs::PlateauConfig config_;
  double rate_;
  double best_;
  int64_t bad_ = 0;       // evaluations in a row that were no better
  int64_t cooldown_ = 0;  // evaluations that will not count as bad
};

}  // namespace zeroth::optim
