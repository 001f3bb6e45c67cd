#include "engine/lap_clock.h"

#include <c10/core/impl/VirtualGuardImpl.h>

#include <utility>

namespace zeroth::engine {

void LapClock::mark(size_t part) {
  if (spare_.empty()) spare_.emplace_back(device_.type(), c10::EventFlag::BACKEND_DEFAULT);
  marks_.push_back({part, Clock::now(), std::move(spare_.back())});
  spare_.pop_back();
  if (device_.is_cpu()) return;
  marks_.back().event.record(c10::impl::VirtualGuardImpl(device_.type()).getStream(device_));
}

double LapClock::between(const Mark& from, const Mark& to) const {
  if (device_.is_cpu()) return std::chrono::duration<double>(to.host - from.host).count();
  return from.event.elapsedTime(to.event) / 1000;  // milliseconds
}

std::vector<LapClock::Lap> LapClock::take() {
  std::vector<Lap> laps;
  while (marks_.size() >= 2 && reached(marks_[1])) {
    if (marks_[1].part != kNobody) laps.push_back({marks_[1].part, between(marks_[0], marks_[1])});
    spare_.push_back(std::move(marks_.front().event));
    marks_.pop_front();
  }
  return laps;
}

}  // namespace zeroth::engine
