#include "engine/lap_clock.h"

namespace zeroth::engine {

void LapClock::mark(size_t part, double elsewhere) {
  marks_.push_back({part, Clock::now(), elsewhere, nullptr});
  if (device_.is_cuda()) marks_.back().event = events_.record(device::current_stream(device_));
}

double LapClock::between(const Mark& from, const Mark& to) const {
  if (device_.is_cpu()) {
    return std::chrono::duration<double>(to.host - from.host).count() - to.elsewhere;
  }
  return device::seconds_between(from.event, to.event);
}

std::vector<LapClock::Lap> LapClock::take() {
  std::vector<Lap> laps;
  while (marks_.size() >= 2 && reached(marks_[1])) {
    if (marks_[1].part != kNobody) laps.push_back({marks_[1].part, between(marks_[0], marks_[1])});
    marks_.pop_front();
  }
  return laps;
}

}  // namespace zeroth::engine
