// A libzeroth_gpu.so for tests on machines without a GPU: found beside their programs, it takes the
// place of the one that knows CUDA.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "device/gpu.h"
#include "tests/simulated_gpu/devices.h"
#include "tests/simulated_gpu/emulated_kernels.h"
#include "tests/simulated_gpu/pinned_pages.h"
#include "tests/simulated_gpu/timeline.h"

namespace zeroth::simulated {
namespace {

class SimulatedGpu final : public device::Gpu {
 public:
  int device_count() const override { return simulated::device_count(); }
  device::GpuDriver driver() const override { return {}; }
  int compute_capability(int) const override { return 90; }
  std::string pin(std::span<std::byte> memory) override {
    PinnedPages::get().lock(memory);
    return "";
  }
  void unpin(std::span<std::byte> memory) noexcept override { PinnedPages::get().unlock(memory); }

 private:
  void select_device(int index) override {
    at::globalContext().lazyInitDevice(c10::DeviceType::CUDA);
    c10::impl::VirtualGuardImpl(c10::kCUDA)
        .setDevice({c10::kCUDA, static_cast<c10::DeviceIndex>(index)});
    use_emulated_kernels();
  }
};

// Of LibTorch's own pinned tensors.
class PinnedMemory final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    bytes = std::max<size_t>(bytes, 1);
    void* memory = std::malloc(bytes);
    std::memset(memory, 0xff, bytes);  // NaN: what is read before a copy has run shows
    PinnedPages::get().lock({static_cast<std::byte*>(memory), bytes});
    return {memory, memory, &give, c10::kCPU};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &give; }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    std::memcpy(to, from, bytes);
  }

 private:
  static void give(void* memory) { PinnedPages::get().free_when_idle(memory); }
};

// What LibTorch itself asks a GPU's library.
struct CUDAHooks final : at::CUDAHooksInterface {
  explicit CUDAHooks(at::CUDAHooksArgs) {}
  void init() const override {}
  bool hasCUDA() const override { return true; }
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  c10::DeviceIndex deviceCount() const override {
    return static_cast<c10::DeviceIndex>(device_count());
  }
  c10::DeviceIndex getCurrentDevice() const override { return simulated::current_device().index(); }
  c10::DeviceIndex current_device() const override { return simulated::current_device().index(); }
  int getNumGPUs() const override { return device_count(); }
  bool isPinnedPtr(const void* data) const override { return PinnedPages::get().contains(data); }
  at::Allocator* getPinnedMemoryAllocator() const override {
    static auto* allocator = new PinnedMemory;  // outlives every tensor
    return allocator;
  }
  // To be seeded. Random numbers are drawn from the CPU's.
  const at::Generator& getDefaultGenerator(c10::DeviceIndex) const override {
    static const at::Generator generator = at::detail::createCPUGenerator();
    return generator;
  }
  void deviceSynchronize(c10::DeviceIndex index) const override {
    Timeline::get().finish_device(with_index({c10::kCUDA, index}).index());
  }
};

}  // namespace
}  // namespace zeroth::simulated

namespace at {
using zeroth::simulated::CUDAHooks;  // LibTorch looks for this name
REGISTER_CUDA_HOOKS(CUDAHooks)
}  // namespace at

extern "C" __attribute__((visibility("default"))) zeroth::device::Gpu* zeroth_gpu_entry() {
  static zeroth::simulated::SimulatedGpu gpu;
  return &gpu;
}

extern "C" __attribute__((visibility("default"))) const char* zeroth_gpu_stamp() {
  return zeroth::device::kGpuStamp;
}

// For tests that count them.
extern "C" __attribute__((visibility("default"))) int64_t zeroth_simulated_waits() {
  return zeroth::simulated::Timeline::get().waits();
}

// For tests that run at many paces.
extern "C" __attribute__((visibility("default"))) void zeroth_simulated_seed(uint64_t seed) {
  zeroth::simulated::Timeline::get().seed(seed);
}
