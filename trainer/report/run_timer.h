// The time of the metrics, which begins at the start of the launcher.
#pragma once

#include <optional>

namespace zeroth::trainer {

class RunTimer {
 public:
  // `launch_time`: seconds since the epoch at which the launcher started; if unset, the start of
  // this process counts.
  explicit RunTimer(std::optional<double> launch_time);

  // Returns the seconds since that start; never decreases.
  double seconds() const;

 private:
  double origin_;  // on the steady clock
};

}  // namespace zeroth::trainer
