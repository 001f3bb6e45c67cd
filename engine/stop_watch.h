#pragma once

#include <chrono>

namespace zeroth::engine {

class StopWatch {
 public:
  // Adds the seconds since the last call (or construction) to `total`.
  void lap(double& total) {
    const auto now = Clock::now();
    total += std::chrono::duration<double>(now - last_).count();
    last_ = now;
  }

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point last_ = Clock::now();
};

}  // namespace zeroth::engine
