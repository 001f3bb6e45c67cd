// How long a device's stream waits for collectives, by events on the stream; no call waits for the
// device.
#pragma once

#include <c10/core/Device.h>

#include <deque>
#include <optional>

#include "comm/group.h"
#include "device/events.h"

namespace zeroth::comm {

class DeviceWaits {
 public:
  struct Span {
    c10::Device device;
    device::Event issued, before, after;
  };

  // The collective is issued now, from the current stream of the device.
  Span issue(c10::Device device);
  // The current stream waits for the collective between these two calls.
  void begin_wait(Span& span);
  void end_wait(Span span);

  // Adds the waits that the device has come through since the last call to waiting_s and
  // under_way_s.
  void collect(CommTimes& times);

 private:
  device::Event record(c10::Device device);

  std::deque<Span> spans_;
  std::optional<device::EventPool> events_;  // of the device that was seen first
};

}  // namespace zeroth::comm
