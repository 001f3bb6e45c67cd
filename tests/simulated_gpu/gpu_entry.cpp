// A libzeroth_gpu.so for tests on machines without a GPU: found beside their programs, it takes the
// place of the one that knows CUDA. No NCCL: ranks meet over the host.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <ATen/detail/CUDAHooksInterface.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "base/error.h"
#include "comm/nccl.h"
#include "device/gpu.h"
#include "device/gpu/product_sums.h"
#include "device/gpu_stamp.h"
#include "tests/simulated_gpu/emulated_kernels.h"
#include "tests/simulated_gpu/locked_pages.h"
#include "tests/simulated_gpu/timeline.h"

namespace zeroth::simulated {
namespace {

class SimulatedGpu final : public device::Gpu {
 public:
  int device_count() const override { return 1; }
  void select(int index) override {
    ZEROTH_CHECK(index == 0, "there is one simulated GPU, not number {}", index);
    at::globalContext().lazyInitDevice(c10::DeviceType::CUDA);
    device::sum_products_in_fp32();
    use_emulated_kernels();
  }
  std::string lock_pages(std::span<std::byte> memory) override {
    LockedPages::get().lock(memory);
    return "";
  }
  void unlock_pages(std::span<std::byte> memory) noexcept override {
    LockedPages::get().unlock(memory);
  }
};

class NoNccl final : public comm::Nccl {
 public:
  int version() const override { return 0; }
  std::unique_ptr<comm::Group> make_group(const c10::intrusive_ptr<c10d::Store>&, int, int,
                                          const comm::NcclOptions&) override {
    throw Error("the simulated GPU has no NCCL");
  }
};

// Of LibTorch's own pinned tensors.
class PinnedMemory final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    bytes = std::max<size_t>(bytes, 1);
    void* memory = std::malloc(bytes);
    std::memset(memory, 0xff, bytes);  // NaN: what is read before a copy has run shows
    LockedPages::get().lock({static_cast<std::byte*>(memory), bytes});
    return {memory, memory, &give, c10::kCPU};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &give; }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    std::memcpy(to, from, bytes);
  }

 private:
  static void give(void* memory) { LockedPages::get().free_when_idle(memory); }
};

// What LibTorch itself asks a GPU's library.
struct CUDAHooks final : at::CUDAHooksInterface {
  explicit CUDAHooks(at::CUDAHooksArgs) {}
  void init() const override {}
  bool hasCUDA() const override { return true; }
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  c10::DeviceIndex deviceCount() const override { return 1; }
  c10::DeviceIndex getCurrentDevice() const override { return 0; }
  c10::DeviceIndex current_device() const override { return 0; }
  int getNumGPUs() const override { return 1; }
  bool isPinnedPtr(const void* data) const override { return LockedPages::get().contains(data); }
  at::Allocator* getPinnedMemoryAllocator() const override {
    static auto* allocator = new PinnedMemory;  // outlives every tensor
    return allocator;
  }
  // To be seeded. Random numbers are drawn from the CPU's.
  const at::Generator& getDefaultGenerator(c10::DeviceIndex) const override {
    static const at::Generator generator = at::detail::createCPUGenerator();
    return generator;
  }
  void deviceSynchronize(c10::DeviceIndex) const override { Timeline::get().finish_all(); }
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

extern "C" __attribute__((visibility("default"))) zeroth::comm::Nccl* zeroth_nccl_entry() {
  static zeroth::simulated::NoNccl nccl;
  return &nccl;
}

extern "C" __attribute__((visibility("default"))) const char* zeroth_gpu_stamp() {
  return zeroth::device::kGpuStamp;
}

// For tests that count them.
extern "C" __attribute__((visibility("default"))) int64_t zeroth_simulated_waits() {
  return zeroth::simulated::Timeline::get().waits();
}
