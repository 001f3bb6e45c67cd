// Events in the queues of a device, to wait for or to time.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/Event.h>
#include <c10/core/Stream.h>

#include <memory>
#include <vector>

namespace zeroth::device {

using Event = std::shared_ptr<c10::Event>;

// EventPool recycles events of one kind once they have no owner, because the driver takes longer to
// create one than to record it. A waiter for an earlier use of an event is unaffected when it is
// recorded again. Neither the pool nor its events are thread-safe.
class EventPool {
 public:
  // Creates a pool. BACKEND_DEFAULT makes events that can be timed; PYTORCH_DEFAULT ones do not
  // time.
  EventPool(c10::DeviceType device, c10::EventFlag flag)
      : device_(device), flag_(flag), spare_(std::make_shared<Spare>()) {}

  // Records an event after all work that the stream has so far.
  Event record(const c10::Stream& stream);

 private:
  using Spare = std::vector<c10::Event>;

  c10::DeviceType device_;
  c10::EventFlag flag_;
  std::shared_ptr<Spare> spare_;  // shared with events that outlive the pool
};

// Returns the current stream of this thread.
c10::Stream current_stream(c10::Device device);

// Returns the time between two events, which must be complete and of the kind that can be timed.
double seconds_between(const Event& from, const Event& to);

}  // namespace zeroth::device
