// Devices, streams and events of the simulated GPUs, as LibTorch and our code reach them: through
// the guard of the device type CUDA.
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <utility>

#include "base/error.h"
#include "tests/simulated_gpu/call_observer.h"
#include "tests/simulated_gpu/device_memory.h"
#include "tests/simulated_gpu/devices.h"
#include "tests/simulated_gpu/queued.h"
#include "tests/simulated_gpu/timeline.h"

namespace zeroth::simulated {
namespace {

using c10::Device;
using c10::DeviceIndex;
using c10::Stream;

constexpr int kPoolStreams = 32;
thread_local DeviceIndex device_of_thread = 0;
thread_local std::array<c10::StreamId, kMaxDevices> streams_of_thread{};

std::atomic<int64_t> events_made = 0;

struct Event {
  Event() { ++events_made; }
  Timeline::Mark mark;  // null: never recorded
};

class DeviceGuard final : public c10::impl::DeviceGuardImplInterface {
 public:
  c10::DeviceType type() const override { return c10::kCUDA; }
  DeviceIndex deviceCount() const noexcept override {
    return static_cast<DeviceIndex>(device_count());
  }
  Device exchangeDevice(Device wanted) const override {
    const Device before = getDevice();
    setDevice(wanted);
    return before;
  }
  Device getDevice() const override { return {c10::kCUDA, device_of_thread}; }
  void setDevice(Device wanted) const override {
    TORCH_CHECK(wanted.index() < device_count(), "there is no simulated GPU ", wanted.index(),
                " of ", device_count());
    uncheckedSetDevice(wanted);
  }
  void uncheckedSetDevice(Device wanted) const noexcept override {
    if (wanted.has_index()) device_of_thread = wanted.index();
  }

  Stream getStream(Device device) const override {
    return stream(device, stream_of_thread(with_index(device)));
  }
  Stream getDefaultStream(Device device) const override { return stream(device, 0); }
  Stream getStreamFromGlobalPool(Device device, bool) const override { return pool_stream(device); }
  Stream getNewStream(Device device, int) const override { return pool_stream(device); }
  Stream exchangeStream(Stream next) const override {
    return stream(next.device(), std::exchange(stream_of_thread(next.device()), next.id()));
  }

  void record(void** event, const Stream& on, DeviceIndex, c10::EventFlag) const override {
    if (*event == nullptr) *event = new Event;
    mark(*event) = Timeline::get().mark(number_of(on));
    report("record", on, *event);
  }
  void block(void* event, const Stream& blocked) const override {
    if (!recorded(event)) return;
    Timeline::get().order(number_of(blocked), mark(event));
    report("block", blocked, event);
  }
  bool queryEvent(void* event) const override {
    return !recorded(event) || Timeline::get().query(asked(event));
  }
  void synchronizeEvent(void* event) const override {
    if (recorded(event)) Timeline::get().finish(asked(event));
  }
  void destroyEvent(void* event, DeviceIndex) const noexcept override {
    delete static_cast<Event*>(event);
  }
  double elapsedTime(void* from, void* to, DeviceIndex) const override {
    TORCH_CHECK(recorded(from) && recorded(to) && mark(from)->passed && mark(to)->passed,
                "the time between events that are not both passed");
    return (mark(to)->seconds - mark(from)->seconds) * 1e3;
  }

  void synchronizeStream(const Stream& stream) const override {
    Timeline::get().finish(number_of(stream));
  }
  void synchronizeDevice(DeviceIndex index) const override {
    Timeline::get().finish_device(with_index({c10::kCUDA, index}).index());
  }
  void recordDataPtrOnStream(const c10::DataPtr& data, const Stream& stream) const override {
    DeviceMemory::get().also_used_on(data.get(), number_of(stream));
  }

 private:
  static void report(const char* name, const Stream& on, void* event) {
    notify_observer(name, {number_of(on), reinterpret_cast<int64_t>(mark(event).get())});
  }
  static c10::StreamId& stream_of_thread(Device device) {
    return streams_of_thread[static_cast<size_t>(device.index())];
  }
  static Stream stream(Device device, c10::StreamId id) {
    return Stream(Stream::UNSAFE, with_index(device), id);
  }
  static Stream pool_stream(Device device) {
    static std::atomic<c10::StreamId> next = 0;
    return stream(device, 1 + next++ % kPoolStreams);
  }
  // The driver does not take the event's device, but opens a context on the thread's.
  static const Timeline::Mark& asked(void* event) noexcept {
    const int device = device_of(mark(event)->stream);
    ZEROTH_CHECK(device == device_of_thread,
                 "a thread whose device is GPU {} asks for an event of GPU {}", device_of_thread,
                 device);
    return mark(event);
  }
  static bool recorded(void* event) { return event != nullptr && mark(event) != nullptr; }
  static Timeline::Mark& mark(void* event) { return static_cast<Event*>(event)->mark; }
};

C10_REGISTER_GUARD_IMPL(CUDA, DeviceGuard)

}  // namespace

int device_count() {
  static const int count = [] {
    const char* text = std::getenv("ZEROTH_SIMULATED_GPUS");
    return text == nullptr ? 1 : std::clamp(std::atoi(text), 1, kMaxDevices);
  }();
  return count;
}

Device current_device() {
  return {c10::kCUDA, device_of_thread};
}

Device with_index(Device device) {
  return device.has_index() ? device : current_device();
}

}  // namespace zeroth::simulated

// For tests that count them.
extern "C" __attribute__((visibility("default"))) int64_t zeroth_simulated_events() {
  return zeroth::simulated::events_made;
}
