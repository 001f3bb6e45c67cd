// Timing of log messages about a long wait.
#pragma once

#include <chrono>

namespace zeroth {

// A SlowWait determines when to log a wait: before ten seconds have passed, so that a user does not
// look at a silent terminal for longer, and then once a minute. It reads no clock: the caller
// passes the time.
class SlowWait {
 public:
  static constexpr std::chrono::milliseconds kFirst{8'000}, kAgain{60'000};

  explicit SlowWait(std::chrono::milliseconds first = kFirst) : next_(first) {}

  // Returns whether the caller should log the wait now, `waited` after it began.
  bool due(std::chrono::milliseconds waited) {
    if (waited < next_) return false;
    next_ = waited + kAgain;
    return true;
  }

 private:
  std::chrono::milliseconds next_;
};

}  // namespace zeroth
