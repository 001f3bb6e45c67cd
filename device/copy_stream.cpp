#include "device/copy_stream.h"

#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <chrono>
#include <deque>
#include <utility>
#include <vector>

#include "base/error.h"
#include "device/events.h"

namespace zeroth::device {
namespace {

using Clock = std::chrono::steady_clock;

void check_copy(const torch::Tensor& to, const torch::Tensor& from) {
  ZEROTH_CHECK(to.is_contiguous() && from.is_contiguous() && to.numel() == from.numel() &&
                   to.scalar_type() == from.scalar_type(),
               "a copy of {} elements of {} to {} of {}", from.numel(),
               c10::toString(from.scalar_type()), to.numel(), c10::toString(to.scalar_type()));
}

int64_t byte_size(const torch::Tensor& tensor) {
  return tensor.numel() * static_cast<int64_t>(tensor.element_size());
}

class DeviceCopies final : public CopyStream {
 public:
  explicit DeviceCopies(torch::Device device)
      : guard_(device.type()),
        device_(device),
        to_device_(guard_.getStreamFromGlobalPool(device)),
        to_host_(guard_.getStreamFromGlobalPool(device)),
        beside_(guard_.getStreamFromGlobalPool(device)),
        timed_(device.type(), c10::EventFlag::BACKEND_DEFAULT),
        untimed_(device.type(), c10::EventFlag::PYTORCH_DEFAULT) {}

  ~DeviceCopies() override { DeviceCopies::drain(); }

  void drain() noexcept override {
    try {
      to_device_.synchronize();
      to_host_.synchronize();
      beside_.synchronize();
      current().synchronize();
    } catch (const std::exception&) {  // the device has failed: nothing runs on it
    }
  }

  // This and behind() are waited for and never timed.
  Point now() override { return untimed_.record(current()); }

  Point behind(const std::function<void()>& wait) override {
    const c10::StreamGuard on(to_host_);
    wait();
    return untimed_.record(to_host_);
  }

  Point beside(const std::vector<Point>& after, const std::function<void()>& work) override {
    block(beside_, after);
    const c10::StreamGuard on(beside_);
    work();
    return untimed_.record(beside_);
  }

  Point copy(const torch::Tensor& to, const torch::Tensor& from,
             const std::vector<Point>& after) override {
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
    (to.is_cpu() ? use_.bytes_to_host : use_.bytes_to_device) += byte_size(to);
    (to.is_cpu() ? host_spans_ : device_spans_).push_back({begin, end});
    return end;
  }

  void order(const Point& point) override {
    if (reached(point)) return;
    if (current() == beside_) return event(point).block(beside_);
    const Event before = timed_.record(current());
    event(point).block(current());
    waits_.push_back({before, timed_.record(current())});
    collect();
  }

  void wait(const Point& point) override {
    if (reached(point)) return;
    const auto start = Clock::now();
    event(point).synchronize();
    use_.waited_s += std::chrono::duration<double>(Clock::now() - start).count();
  }

  bool reached(const Point& point) override { return !point || event(point).query(); }

  LinkUse use() override {
    collect();
    return use_;
  }

 private:
  struct Span {
    Event begin, end;
  };

  static c10::Event& event(const Point& point) { return *static_cast<c10::Event*>(point.get()); }
  static void block(const c10::Stream& stream, const std::vector<Point>& after) {
    for (const Point& point : after) {
      if (point) event(point).block(stream);
    }
  }
  c10::Stream current() const { return current_stream(device_); }

  static void collect(std::deque<Span>& spans, double& seconds) {
    while (!spans.empty() && spans.front().end->query()) {
      seconds += seconds_between(spans.front().begin, spans.front().end);
      spans.pop_front();
    }
  }

  void collect() {
    collect(device_spans_, use_.to_device_s);
    collect(host_spans_, use_.to_host_s);
    collect(waits_, use_.waited_s);
  }

  c10::impl::VirtualGuardImpl guard_;
  torch::Device device_;
  c10::Stream to_device_, to_host_, beside_;
  EventPool timed_, untimed_;
  LinkUse use_;
  std::deque<Span> device_spans_, host_spans_, waits_;  // not yet in use_
};

class HostCopies final : public CopyStream {
 public:
  Point now() override { return {}; }
  Point copy(const torch::Tensor& to, const torch::Tensor& from,
             const std::vector<Point>&) override {
    check_copy(to, from);
    const torch::NoGradGuard no_grad;
    to.copy_(from);
    return {};
  }
  void order(const Point&) override {}
  void wait(const Point&) override {}
  bool reached(const Point&) override { return true; }
  void drain() noexcept override {}
};

}  // namespace

std::unique_ptr<CopyStream> make_copy_stream(torch::Device device) {
  if (device.is_cpu()) return std::make_unique<HostCopies>();
  return std::make_unique<DeviceCopies>(device);
}

}  // namespace zeroth::device
