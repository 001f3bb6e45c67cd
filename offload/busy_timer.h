// Measures how long at least one of several operations was in flight.
#pragma once

#include <chrono>
#include <cstddef>

namespace zeroth::offload {

// BusyTimer is not thread-safe.
class BusyTimer {
 public:
  void begin() {
    if (active_++ == 0) since_ = Clock::now();
  }
  void end() {
    if (--active_ == 0) accumulated_ += Clock::now() - since_;
  }
  // Returns the time up to now, including operations still in flight.
  double seconds() const {
    auto total = accumulated_;
    if (active_ > 0) total += Clock::now() - since_;
    return total.count();
  }

 private:
  using Clock = std::chrono::steady_clock;

  size_t active_ = 0;
  Clock::time_point since_;
  std::chrono::duration<double> accumulated_{0};
};

}  // namespace zeroth::offload
