// Device, streams and events of the simulated GPU, as LibTorch and our code reach them: through the
// guard of the device type CUDA. There is one device.
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <atomic>
#include <utility>

#include "tests/simulated_gpu/device_memory.h"
#include "tests/simulated_gpu/timeline.h"

namespace zeroth::simulated {
namespace {

using c10::Device;
using c10::DeviceIndex;
using c10::Stream;

constexpr int kPoolStreams = 32;
thread_local StreamNumber current_stream_of_thread = kDefaultStream;

std::atomic<int64_t> events_made = 0;

struct Event {
  Event() { ++events_made; }
  Timeline::Mark mark;  // null: never recorded
};

class DeviceGuard final : public c10::impl::DeviceGuardImplInterface {
 public:
  c10::DeviceType type() const override { return c10::kCUDA; }
  DeviceIndex deviceCount() const noexcept override { return 1; }
  Device exchangeDevice(Device) const override { return device(); }
  Device getDevice() const override { return device(); }
  void setDevice(Device wanted) const override {
    TORCH_CHECK(wanted.index() <= 0, "there is one simulated GPU, not number ", wanted.index());
  }
  void uncheckedSetDevice(Device) const noexcept override {}

  Stream getStream(Device) const override { return stream(current_stream_of_thread); }
  Stream getDefaultStream(Device) const override { return stream(kDefaultStream); }
  Stream getStreamFromGlobalPool(Device, bool) const override { return pool_stream(); }
  Stream getNewStream(Device, int) const override { return pool_stream(); }
  Stream exchangeStream(Stream next) const override {
    return stream(std::exchange(current_stream_of_thread, next.id()));
  }

  void record(void** event, const Stream& on, DeviceIndex, c10::EventFlag) const override {
    if (*event == nullptr) *event = new Event;
    mark(*event) = Timeline::get().mark(on.id());
  }
  void block(void* event, const Stream& blocked) const override {
    if (recorded(event)) Timeline::get().order(blocked.id(), mark(event));
  }
  bool queryEvent(void* event) const override {
    return !recorded(event) || Timeline::get().query(mark(event));
  }
  void synchronizeEvent(void* event) const override {
    if (recorded(event)) Timeline::get().finish(mark(event));
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
    Timeline::get().finish(stream.id());
  }
  void synchronizeDevice(DeviceIndex) const override { Timeline::get().finish_all(); }
  void recordDataPtrOnStream(const c10::DataPtr& data, const Stream& stream) const override {
    DeviceMemory::get().also_used_on(data.get(), stream.id());
  }

 private:
  static Device device() { return {c10::kCUDA, 0}; }
  static Stream stream(StreamNumber number) { return Stream(Stream::UNSAFE, device(), number); }
  static Stream pool_stream() {
    static std::atomic<StreamNumber> next = 0;
    return stream(1 + next++ % kPoolStreams);
  }
  static bool recorded(void* event) { return event != nullptr && mark(event) != nullptr; }
  static Timeline::Mark& mark(void* event) { return static_cast<Event*>(event)->mark; }
};

C10_REGISTER_GUARD_IMPL(CUDA, DeviceGuard)

}  // namespace
}  // namespace zeroth::simulated

// For tests that count them.
extern "C" __attribute__((visibility("default"))) int64_t zeroth_simulated_events() {
  return zeroth::simulated::events_made;
}
