#include "device/events.h"

#include <c10/core/impl/VirtualGuardImpl.h>

#include <utility>

namespace zeroth::device {

Event EventPool::record(const c10::Stream& stream) {
  struct RecycledEvent {
    RecycledEvent(c10::Event used, std::shared_ptr<Spare> back)
        : event(std::move(used)), spare(std::move(back)) {}
    ~RecycledEvent() { spare->push_back(std::move(event)); }
    c10::Event event;
    std::shared_ptr<Spare> spare;
  };
  if (spare_->empty()) spare_->emplace_back(device_, flag_);
  auto held = std::make_shared<RecycledEvent>(std::move(spare_->back()), spare_);
  spare_->pop_back();
  held->event.record(stream);
  return {held, &held->event};
}

c10::Stream current_stream(c10::Device device) {
  return c10::impl::VirtualGuardImpl(device.type()).getStream(device);
}

double seconds_between(const Event& from, const Event& to) {
  return from->elapsedTime(*to) / 1000;  // milliseconds
}

}  // namespace zeroth::device
