// How long at least one of several things was under way.
#pragma once

#include <chrono>
#include <cstddef>

namespace zeroth::offload {

// Not thread-safe.
class BusyTime {
 public:
  void begin() {
    if (under_way_++ == 0) since_ = Clock::now();
  }
  void end() {
    if (--under_way_ == 0) before_ += Clock::now() - since_;
  }
  // Up to now, what is under way included.
  double seconds() const {
    auto total = before_;
    if (under_way_ > 0) total += Clock::now() - since_;
    return total.count();
  }

 private:
  using Clock = std::chrono::steady_clock;

  size_t under_way_ = 0;
  Clock::time_point since_;
  std::chrono::duration<double> before_{0};
};

}  // namespace zeroth::offload
