// Time for waits with a limit.
#pragma once

#include <algorithm>
#include <chrono>

namespace zeroth::comm {

// How often to ask at least.
inline constexpr std::chrono::milliseconds kGlance{200};

// Time since it was made, without that in which the process was suspended (Ctrl-Z, a batch system):
// what lies between two questions counts as one glance at most.
class RunningTime {
 public:
  std::chrono::milliseconds passed() {
    const auto now = Clock::now();
    passed_ += std::min<Clock::duration>(now - asked_, kGlance);
    asked_ = now;
    return std::chrono::duration_cast<std::chrono::milliseconds>(passed_);
  }

 private:
  using Clock = std::chrono::steady_clock;

  Clock::time_point asked_ = Clock::now();
  Clock::duration passed_{0};
};

}  // namespace zeroth::comm
