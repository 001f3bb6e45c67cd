// When a wait that lasts is logged.
#pragma once

#include <chrono>

namespace zeroth {

// A user never looks at a silent terminal for more than ten seconds: a wait is logged before they
// have passed, and then once a minute. Reads no clock: the caller passes the time.
class SlowWait {
 public:
  static constexpr std::chrono::milliseconds kFirst{8'000}, kAgain{60'000};

  explicit SlowWait(std::chrono::milliseconds first = kFirst) : next_(first) {}

  // Returns whether the wait is to be logged now, `waited` after it began.
  bool due(std::chrono::milliseconds waited) {
    if (waited < next_) return false;
    next_ = waited + kAgain;
    return true;
  }

 private:
  std::chrono::milliseconds next_;
};

}  // namespace zeroth
