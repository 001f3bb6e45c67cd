// Timing of a thread's work, and of log messages about a long wait.
#pragma once

#include <chrono>

namespace zeroth {

// A Timer counts the seconds since its construction.
class Timer {
 public:
  double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

// A ScopedTimer adds the seconds of its lifetime to `sum`.
class ScopedTimer {
 public:
  explicit ScopedTimer(double& sum) : sum_(sum) {}
  ~ScopedTimer() { sum_ += timer_.seconds(); }
  ScopedTimer(const ScopedTimer&) = delete;
  ScopedTimer& operator=(const ScopedTimer&) = delete;

 private:
  double& sum_;
  Timer timer_;
};

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
