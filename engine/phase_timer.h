// How long the parts of a step take, by the clock of the device that works on them.
#pragma once

#include <c10/core/Device.h>

#include <chrono>
#include <deque>
#include <vector>

#include "device/events.h"

namespace zeroth::engine {

// On the CPU laps are host time. A GPU works behind the host: there each call queues an event
// behind the work so far, and laps are told when the device has reached them. No call waits for it.
class PhaseTimer {
 public:
  struct PhaseTime {
    size_t part = 0;
    double seconds = 0;
  };

  explicit PhaseTimer(c10::Device device)
      : device_(device), events_(device.type(), c10::EventFlag::BACKEND_DEFAULT) {}

  // The time until the next lap() starts here; what came since the last one belongs to nobody.
  void begin() { mark(kUnattributed); }
  // The time since the last begin() or lap() belongs to `part`, but for so many seconds of the
  // host's, which are counted elsewhere; a GPU's clock does not see these.
  void end_phase(size_t part, double excluded_seconds = 0) { mark(part, excluded_seconds); }
  // The laps that have ended since the last call, in order. Those that the device is still at stay
  // for a later call: after a wait for the device none of the laps before it is left.
  std::vector<PhaseTime> take_finished();

 private:
  static constexpr size_t kUnattributed = ~size_t{0};
  using Clock = std::chrono::steady_clock;

  struct Timestamp {
    size_t part;
    Clock::time_point host;
    double excluded_seconds;
    device::Event event;  // on a GPU
  };

  void mark(size_t part, double excluded_seconds = 0);
  bool reached(const Timestamp& mark) const { return device_.is_cpu() || mark.event->query(); }
  double between(const Timestamp& from, const Timestamp& to) const;

  c10::Device device_;
  device::EventPool events_;
  std::deque<Timestamp> timestamps_;  // the first one was taken already, but starts the next lap
};

}  // namespace zeroth::engine
