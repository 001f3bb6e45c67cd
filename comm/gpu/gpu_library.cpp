// libzeroth_gpu.so: all that is CUDA. The programs do not link it, they load it when a GPU is used
// (gpu_loader.cpp).
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>

#include "base/error.h"
#include "comm/c10d_group.h"
#include "comm/call.h"
#include "comm/gpu.h"
#include "comm/gpu/product_sums.h"
#include "comm/gpu_stamp.h"

namespace zeroth::comm {
namespace {

// Our watchdog names block and ranks, and does not count time in which the job is suspended. c10d's
// own, which kills with a stack trace, counts it, and so must never come first.
constexpr std::chrono::hours kBackstop{24 * 365};

class CudaGpu final : public Gpu {
 public:
  int device_count() const override { return c10::cuda::device_count(); }

  void select(int index) override {
    at::globalContext().lazyInitDevice(c10::DeviceType::CUDA);
    c10::cuda::set_device(static_cast<c10::DeviceIndex>(index));
    sum_products_in_fp32();
  }

  int nccl_version() const override {
    int version = 0;
    ncclGetVersion(&version);
    return version;
  }

  std::unique_ptr<Group> make_nccl_group(const c10::intrusive_ptr<c10d::Store>& store, int rank,
                                         int size, const NcclOptions& settings) override {
    const auto watchdog = std::make_shared<Watchdog>(settings.timeout, settings.on_stuck);
    const auto guard = watchdog->guard([=, table = settings.table](const std::string& why) {
      return fmt::format("rank {} of {}: cannot connect over NCCL: {}; {}", rank, size, why,
                         table ? table->explain(0, {}) : "its peers are not known");
    });
    try {
      auto options = c10d::ProcessGroupNCCL::Options::create();
      options->timeout = settings.timeout + kBackstop;
      auto backend = c10::make_intrusive<c10d::ProcessGroupNCCL>(store, rank, size, options);
      backend->eagerConnectSingleDevice(
          torch::Device(torch::kCUDA, static_cast<c10::DeviceIndex>(c10::cuda::current_device())));
      return make_c10d_group(backend, {.table = settings.table, .watchdog = watchdog});
    } catch (const std::exception& cause) {
      throw Error("rank {} of {}: cannot connect over NCCL: {}", rank, size, words_of(cause));
    }
  }

  std::string lock_pages(std::span<std::byte> memory) override {
    const cudaError_t error =
        cudaHostRegister(memory.data(), memory.size(), cudaHostRegisterPortable);
    if (error == cudaSuccess) return "";
    (void)cudaGetLastError();  // else the next call that looks would report it as its own
    return fmt::format("{} bytes: {}", memory.size(), cudaGetErrorString(error));
  }

  void unlock_pages(std::span<std::byte> memory) noexcept override {
    // At the end of a process the driver may be gone, and the lock with it.
    if (cudaHostUnregister(memory.data()) != cudaSuccess) (void)cudaGetLastError();
  }

  int64_t peak_allocated_bytes(int index) const override {
    const auto stats =
        c10::cuda::CUDACachingAllocator::getDeviceStats(static_cast<c10::DeviceIndex>(index));
    return stats.allocated_bytes[0].peak;
  }
};

}  // namespace
}  // namespace zeroth::comm

extern "C" __attribute__((visibility("default"))) zeroth::comm::Gpu& zeroth_gpu_entry() {
  static zeroth::comm::CudaGpu gpu;
  return gpu;
}

extern "C" __attribute__((visibility("default"))) const char* zeroth_gpu_stamp() {
  return zeroth::comm::kGpuStamp;
}
