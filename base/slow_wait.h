// When a wait that lasts is told of.
#pragma once

#include <chrono>

namespace zeroth {

// Nobody who waits looks at a silent terminal for more than ten seconds: a wait is told of before
// these are over, and then once a minute. Knows no clock.
class SlowWait {
 public:
  static constexpr std::chrono::milliseconds kFirst{8'000}, kAgain{60'000};

  explicit SlowWait(std::chrono::milliseconds first = kFirst) : next_(first) {}

  // Whether it is to be told of now, `waited` after its beginning.
  bool due(std::chrono::milliseconds waited) {
    if (waited < next_) return false;
    next_ = waited + kAgain;
    return true;
  }

 private:
  std::chrono::milliseconds next_;
};

}  // namespace zeroth
