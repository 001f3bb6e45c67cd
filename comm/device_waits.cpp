#include "comm/device_waits.h"

#include <c10/core/impl/VirtualGuardImpl.h>

#include <utility>

namespace zeroth::comm {
namespace {

void record(c10::Event& event, c10::Device device) {
  event.record(c10::impl::VirtualGuardImpl(device.type()).getStream(device));
}

}  // namespace

c10::Event DeviceWaits::event(c10::Device device) {
  if (spare_.empty()) return c10::Event(device.type(), c10::EventFlag::BACKEND_DEFAULT);
  c10::Event event = std::move(spare_.back());
  spare_.pop_back();
  return event;
}

DeviceWaits::Span DeviceWaits::issue(c10::Device device) {
  Span span{event(device), event(device), event(device)};
  record(span.issued, device);
  return span;
}

void DeviceWaits::begin_wait(Span& span) {
  record(span.before, span.issued.device());
}

void DeviceWaits::end_wait(Span span) {
  record(span.after, span.issued.device());
  spans_.push_back(std::move(span));
}

void DeviceWaits::collect(CommTimes& times) {
  while (!spans_.empty() && spans_.front().after.query()) {
    Span& span = spans_.front();
    times.waiting_s += span.before.elapsedTime(span.after) / 1000;  // milliseconds
    times.under_way_s += span.issued.elapsedTime(span.after) / 1000;
    for (c10::Event* event : {&span.issued, &span.before, &span.after}) {
      spare_.push_back(std::move(*event));
    }
    spans_.pop_front();
  }
}

}  // namespace zeroth::comm
