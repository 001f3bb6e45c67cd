#include "comm/device_waits.h"

#include <utility>

namespace zeroth::comm {

device::Event DeviceWaits::record(c10::Device device) {
  if (!events_) events_.emplace(device.type(), c10::EventFlag::BACKEND_DEFAULT);
  return events_->record(device::current_stream(device));
}

DeviceWaits::Span DeviceWaits::issue(c10::Device device) {
  return {device, record(device), nullptr, nullptr};
}

void DeviceWaits::begin_wait(Span& span) {
  span.before = record(span.device);
}

void DeviceWaits::end_wait(Span span) {
  span.after = record(span.device);
  spans_.push_back(std::move(span));
}

void DeviceWaits::collect(CommTimes& times) {
  while (!spans_.empty() && spans_.front().after->query()) {
    const Span& span = spans_.front();
    times.waiting_s += device::seconds_between(span.before, span.after);
    times.under_way_s += device::seconds_between(span.issued, span.after);
    spans_.pop_front();
  }
}

}  // namespace zeroth::comm
