#include "engine/step/phase_timer.h"

namespace zeroth::engine {

void PhaseTimer::mark(size_t part, double excluded_seconds) {
  timestamps_.push_back({part, Clock::now(), excluded_seconds, nullptr});
  if (device_.is_cuda()) timestamps_.back().event = events_.record(device::current_stream(device_));
}

double PhaseTimer::between(const Timestamp& from, const Timestamp& to) const {
  if (device_.is_cpu()) {
    return std::chrono::duration<double>(to.host - from.host).count() - to.excluded_seconds;
  }
  return device::seconds_between(from.event, to.event);
}

std::vector<PhaseTimer::PhaseTime> PhaseTimer::take_finished() {
  std::vector<PhaseTime> times;
  while (timestamps_.size() >= 2 && reached(timestamps_[1])) {
    if (timestamps_[1].part != kUnattributed)
      times.push_back({timestamps_[1].part, between(timestamps_[0], timestamps_[1])});
    timestamps_.pop_front();
  }
  return times;
}

}  // namespace zeroth::engine
