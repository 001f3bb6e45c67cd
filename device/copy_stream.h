// Copies between a device and the host, beside what the device computes.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

namespace zeroth::device {

// A point in a device's work, understood by the CopyStream that made it; null: passed already.
using StreamEvent = std::shared_ptr<void>;

// Since the stream was made. The two directions may be under way at once.
struct LinkStats {
  int64_t bytes_to_device = 0;
  int64_t bytes_to_host = 0;
  double to_device_s = 0;  // during which copies ran
  double to_host_s = 0;
  // The host in wait(), and the device's current stream behind wait_event(), but for that of
  // run_on_side_stream().
  double waited_s = 0;
};

// All methods are called by one thread, whose current stream is meant.
class CopyStream {
 public:
  virtual ~CopyStream() = default;  // drains

  // What the current stream holds by now.
  virtual StreamEvent record_event() = 0;
  // Calls `wait`, which makes the current stream wait for something, with the stream of copies to
  // the host as the current one; returns the point at which that wait has ended. The caller's own
  // stream does not wait, and its earlier work goes on.
  virtual StreamEvent record_after(const std::function<void()>& wait) {
    wait();
    return {};
  }
  // Calls `work` while a second stream is the current one, which first waits for `after`; returns
  // the point at which all has ended that was given to it. Tensors of the caller's stream that
  // `work` uses stay until that stream was ordered behind the point.
  virtual StreamEvent run_on_side_stream(const std::vector<StreamEvent>& /*after*/,
                                         const std::function<void()>& work) {
    work();
    return {};
  }
  // Queues to.copy_(from) and returns its end. It runs behind `after`, and not behind what else the
  // current stream holds: a caller whose work there writes `from`, or uses `to`, passes a
  // record_event() taken since. Contiguous tensors of one dtype and length, one on the host, one on
  // the device; their memory stays until the host waited for the end, or, if the current stream's
  // allocator has it, until the current stream was ordered behind the end.
  virtual StreamEvent copy(const torch::Tensor& to, const torch::Tensor& from,
                           const std::vector<StreamEvent>& after) = 0;
  // What the current stream is given from now on runs behind the point. Does not block.
  virtual void wait_event(const StreamEvent& point) = 0;
  // Blocks until the point has passed.
  virtual void wait(const StreamEvent& point) = 0;
  virtual bool is_complete(const StreamEvent& point) = 0;
  // Blocks until all copies, all work of run_on_side_stream() and what the current stream was given
  // have ended. For destructors of those who own the memory: a device that has failed has no copies
  // left.
  virtual void drain() noexcept = 0;

  virtual LinkStats stats() { return {}; }
};

// For the CPU every copy has ended when copy() returns.
std::unique_ptr<CopyStream> make_copy_stream(torch::Device device);

}  // namespace zeroth::device
