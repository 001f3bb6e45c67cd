// Points in the queues of a device, to be waited for or timed.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/Event.h>
#include <c10/core/Stream.h>

#include <memory>
#include <vector>

namespace zeroth::device {

using Event = std::shared_ptr<c10::Event>;

// Events of one kind. They are used again when nobody holds them any more: to make one takes the
// driver longer than to record it. What waits for an earlier use of an event keeps waiting for that
// when it is recorded again. Neither the pool nor its events are for several threads at a time.
class EventPool {
 public:
  // BACKEND_DEFAULT: they can be timed; PYTORCH_DEFAULT: only waited for.
  EventPool(c10::DeviceType device, c10::EventFlag flag)
      : device_(device), flag_(flag), spare_(std::make_shared<Spare>()) {}

  // Behind what the stream was given so far.
  Event record(const c10::Stream& stream);

 private:
  using Spare = std::vector<c10::Event>;

  c10::DeviceType device_;
  c10::EventFlag flag_;
  std::shared_ptr<Spare> spare_;  // there for events that outlive this
};

// The stream to which this thread gives its work.
c10::Stream current_stream(c10::Device device);

// Between two events that can be timed and that the device has come through.
double seconds_between(const Event& from, const Event& to);

}  // namespace zeroth::device
