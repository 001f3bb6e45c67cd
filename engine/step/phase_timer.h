// Timer of the phases of a step, by the clock of the device that runs them.
#pragma once

#include <c10/core/Device.h>

#include <chrono>
#include <deque>
#include <vector>

#include "device/events.h"

namespace zeroth::engine {

// PhaseTimer measures phases. On the CPU it uses the CPU's clock. A GPU runs after the CPU: there
// each call records an event on the stream, and phases are reported once the device has reached
// their events. No call waits for the device.
class PhaseTimer {
 public:
  struct PhaseTime {
    size_t part = 0;
    double seconds = 0;
  };

  explicit PhaseTimer(c10::Device device)
      : device_(device), events_(device.type(), c10::EventFlag::BACKEND_DEFAULT) {}

  // Starts a phase. The time since the last end_phase() belongs to none.
  void begin() { mark(kUnattributed); }
  // Ends a phase: the time since the last begin() or end_phase() belongs to `part`, less
  // `excluded_seconds` of CPU time, which are counted elsewhere; a GPU's clock does not see these.
  void end_phase(size_t part, double excluded_seconds = 0) { mark(part, excluded_seconds); }
  // Returns the phases that have ended since the last call, in order. Phases that the device is
  // still running stay for a later call; none of the earlier ones is left after a wait for the
  // device.
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
  std::deque<Timestamp> timestamps_;  // the first one starts the next phase
};

}  // namespace zeroth::engine
