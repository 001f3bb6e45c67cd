// Time as the metrics count it: from the start of the launcher.
#pragma once

#include <optional>

namespace zeroth::trainer {

class RunTimer {
 public:
  // `launch_time`: seconds since the epoch at which the launcher started; without one, the start of
  // this process counts.
  explicit RunTimer(std::optional<double> launch_time);

  // Seconds since that start; never runs backwards.
  double seconds() const;

 private:
  double origin_;  // on the steady clock
};

}  // namespace zeroth::trainer
