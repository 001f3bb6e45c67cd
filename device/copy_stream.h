// Copies between a device and CPU memory that overlap with the device's computation.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "device/tensor.h"

namespace zeroth::device {

// A StreamEvent is a point in a device's work that belongs to one CopyStream; null: already
// complete.
using StreamEvent = std::shared_ptr<void>;

// LinkStats counts since the stream was made. Both directions can be active at once.
struct LinkStats {
  int64_t bytes_to_device = 0;
  int64_t bytes_to_host = 0;
  double to_device_s = 0;  // time during which copies ran
  double to_host_s = 0;
  // Time that the CPU spent in wait(), and the device's current stream in wait_event(), except on
  // the stream of run_on_side_stream().
  double waited_s = 0;
};

// CopyStream's methods are called by one thread and refer to that thread's current stream.
class CopyStream {
 public:
  virtual ~CopyStream() = default;  // drains

  // Returns an event after all work that the current stream has so far.
  virtual StreamEvent record_event() = 0;
  // Calls `wait`, which makes the current stream wait for something, with the device-to-host copy
  // stream as the current one. Returns the event after that wait. The caller's own stream does not
  // wait, and its earlier work continues.
  virtual StreamEvent record_after(const std::function<void()>& wait) {
    wait();
    return {};
  }
  // Calls `work` with a second stream, which first waits for `after`, as the current one. Returns
  // the event after all work queued on it. Tensors of the caller's stream that `work` uses must
  // live until that stream waits for the event.
  virtual StreamEvent run_on_side_stream(const std::vector<StreamEvent>& /*after*/,
                                         const std::function<void()>& work) {
    work();
    return {};
  }
  // Queues to.copy_(from) and returns its end. The copy waits for `after` only, not for other work
  // on the current stream: if such work writes `from` or uses `to`, pass a record_event() taken
  // after it. `from` and `to` are contiguous, of one dtype and length, one on the CPU, one on the
  // device. Their memory must live until the CPU has waited for the end or, if the current stream's
  // allocator owns it, until the current stream waits for the end.
  virtual StreamEvent copy(const torch::Tensor& to, const torch::Tensor& from,
                           const std::vector<StreamEvent>& after) = 0;
  // Orders all later work of the current stream after `point`. Does not block.
  virtual void wait_event(const StreamEvent& point) = 0;
  // Blocks until `point` is complete.
  virtual void wait(const StreamEvent& point) = 0;
  virtual bool is_complete(const StreamEvent& point) = 0;
  // Blocks until all copies, all work of run_on_side_stream() and all work of the current stream
  // have ended. Intended for destructors of the memory's owners. Returns if the device has failed,
  // because no copies run then.
  virtual void drain() noexcept = 0;

  virtual LinkStats stats() { return {}; }
};

// Makes a copy stream. On the CPU each copy ends before copy() returns.
std::unique_ptr<CopyStream> make_copy_stream(torch::Device device);

}  // namespace zeroth::device
