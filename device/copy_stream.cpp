#include "device/copy_stream.h"

#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <deque>

#include "base/error.h"
#include "base/machine/timer.h"
#include "device/events.h"

namespace zeroth::device {
namespace {

void check_copy(const torch::Tensor& to, const torch::Tensor& from) {
  ZEROTH_CHECK(to.is_contiguous() && from.is_contiguous() && to.numel() == from.numel() &&
                   to.scalar_type() == from.scalar_type(),
               "a copy of {} elements of {} to {} of {}", from.numel(),
               c10::toString(from.scalar_type()), to.numel(), c10::toString(to.scalar_type()));
}

class DeviceCopyStream final : public CopyStream {
 public:
  explicit DeviceCopyStream(torch::Device device)
      : guard_(device.type()),
        device_(device),
        to_device_(guard_.getStreamFromGlobalPool(device)),
        to_host_(guard_.getStreamFromGlobalPool(device)),
        side_stream_(guard_.getStreamFromGlobalPool(device)),
        timed_(device.type(), c10::EventFlag::BACKEND_DEFAULT),
        untimed_(device.type(), c10::EventFlag::PYTORCH_DEFAULT) {}

  ~DeviceCopyStream() override { DeviceCopyStream::drain(); }

  void drain() noexcept override {
    try {
      to_device_.synchronize();
      to_host_.synchronize();
      side_stream_.synchronize();
      current().synchronize();
    } catch (const std::exception&) {  // the device has failed: nothing runs on it
    }
  }

  // Events of record_event() and record_after() are waited for and never timed.
  StreamEvent record_event() override { return untimed_.record(current()); }

  StreamEvent record_after(const std::function<void()>& wait) override {
    const c10::StreamGuard on(to_host_);
    wait();
    return untimed_.record(to_host_);
  }

  StreamEvent run_on_side_stream(const std::vector<StreamEvent>& after,
                                 const std::function<void()>& work) override {
    block(side_stream_, after);
    const c10::StreamGuard on(side_stream_);
    work();
    return untimed_.record(side_stream_);
  }

  StreamEvent copy(const torch::Tensor& to, const torch::Tensor& from,
                   const std::vector<StreamEvent>& after) override {
    check_copy(to, from);
    ZEROTH_CHECK(to.is_cpu() != from.is_cpu(), "a copy from {} to {}", from.device().str(),
                 to.device().str());
    const c10::Stream& stream = to.is_cpu() ? to_host_ : to_device_;
    block(stream, after);
    const torch::NoGradGuard no_grad;
    const Event begin = timed_.record(stream);
    {
      const c10::StreamGuard on(stream);
      to.copy_(from, /*non_blocking=*/true);
    }
    const Event end = timed_.record(stream);
    collect();
    (to.is_cpu() ? stats_.bytes_to_host : stats_.bytes_to_device) +=
        static_cast<int64_t>(to.nbytes());
    (to.is_cpu() ? host_spans_ : device_spans_).push_back({begin, end});
    return end;
  }

  void wait_event(const StreamEvent& point) override {
    if (is_complete(point)) return;
    if (current() == side_stream_) return event(point).block(side_stream_);
    const Event before = timed_.record(current());
    event(point).block(current());
    waits_.push_back({before, timed_.record(current())});
    collect();
  }

  void wait(const StreamEvent& point) override {
    if (is_complete(point)) return;
    const ScopedTimer timer(stats_.waited_s);
    event(point).synchronize();
  }

  bool is_complete(const StreamEvent& point) override { return !point || event(point).query(); }

  LinkStats stats() override {
    collect();
    return stats_;
  }

 private:
  struct EventSpan {
    Event begin, end;
  };

  static c10::Event& event(const StreamEvent& point) {
    return *static_cast<c10::Event*>(point.get());
  }
  static void block(const c10::Stream& stream, const std::vector<StreamEvent>& after) {
    for (const StreamEvent& point : after) {
      if (point) event(point).block(stream);
    }
  }
  c10::Stream current() const { return current_stream(device_); }

  static void collect(std::deque<EventSpan>& spans, double& seconds) {
    while (!spans.empty() && spans.front().end->query()) {
      seconds += seconds_between(spans.front().begin, spans.front().end);
      spans.pop_front();
    }
  }

  void collect() {
    collect(device_spans_, stats_.to_device_s);
    collect(host_spans_, stats_.to_host_s);
    collect(waits_, stats_.waited_s);
  }

  c10::impl::VirtualGuardImpl guard_;
  torch::Device device_;
  c10::Stream to_device_, to_host_, side_stream_;
  EventPool timed_, untimed_;
  LinkStats stats_;
  std::deque<EventSpan> device_spans_, host_spans_, waits_;  // not yet in stats_
};

class CpuCopyStream final : public CopyStream {
 public:
  StreamEvent record_event() override { return {}; }
  StreamEvent copy(const torch::Tensor& to, const torch::Tensor& from,
                   const std::vector<StreamEvent>&) override {
    check_copy(to, from);
    const torch::NoGradGuard no_grad;
    to.copy_(from);
    return {};
  }
  void wait_event(const StreamEvent&) override {}
  void wait(const StreamEvent&) override {}
  bool is_complete(const StreamEvent&) override { return true; }
  void drain() noexcept override {}
};

}  // namespace

std::unique_ptr<CopyStream> make_copy_stream(torch::Device device) {
  if (device.is_cpu()) return std::make_unique<CpuCopyStream>();
  return std::make_unique<DeviceCopyStream>(device);
}

}  // namespace zeroth::device
