// Memory of the simulated GPUs as LibTorch takes it.
#include <c10/core/CachingDeviceAllocator.h>

#include <utility>

#include "tests/simulated_gpu/device_memory.h"
#include "tests/simulated_gpu/queued.h"

namespace zeroth::simulated {
namespace {

class DeviceAllocator final : public c10::DeviceAllocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    void* memory = DeviceMemory::get().take(bytes, current_stream());
    return {memory, memory, &give, current_device()};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &give; }
  void copy_data(void*, const void*, size_t) const override {
    TORCH_CHECK(false, "the simulated GPU copies by queued work only");
  }

  bool initialized() override { return true; }
  void emptyCache(c10::MempoolId_t) override {}
  void recordStream(const c10::DataPtr& data, c10::Stream stream) override {
    DeviceMemory::get().also_used_on(data.get(), number_of(stream));
  }
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex index) override {
    const int device = with_index({c10::kCUDA, index}).index();
    c10::CachingDeviceAllocator::DeviceStats stats;
    for (auto* bytes : {&stats.allocated_bytes[0], &stats.reserved_bytes[0]}) {
      bytes->current = DeviceMemory::get().live_bytes(device);
      bytes->peak = DeviceMemory::get().peak_bytes(device);
    }
    return stats;
  }
  void resetAccumulatedStats(c10::DeviceIndex) override {}
  void resetPeakStats(c10::DeviceIndex) override {}
  std::pair<size_t, size_t> getMemoryInfo(c10::DeviceIndex index) override {
    const int device = with_index({c10::kCUDA, index}).index();
    const auto live = static_cast<size_t>(DeviceMemory::get().live_bytes(device));
    return {DeviceMemory::kTotalBytes - live, DeviceMemory::kTotalBytes};
  }

 private:
  static void give(void* memory) { DeviceMemory::get().give(memory); }
};

DeviceAllocator allocator;
REGISTER_ALLOCATOR(c10::kCUDA, &allocator)

}  // namespace
}  // namespace zeroth::simulated
