// libzeroth_gpu.so: all that is CUDA. The programs do not link it, they load it when a GPU is used
// (gpu_loader.cpp).
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>

#include "base/error.h"
#include "comm/c10d_group.h"
#include "comm/gpu.h"

namespace zeroth::comm {
namespace {

class CudaGpu final : public Gpu {
 public:
  int device_count() const override { return c10::cuda::device_count(); }

  void select(int index) override {
    at::globalContext().lazyInitDevice(c10::DeviceType::CUDA);
    c10::cuda::set_device(static_cast<c10::DeviceIndex>(index));
  }

  std::unique_ptr<Group> make_nccl_group(const c10::intrusive_ptr<c10d::Store>& store, int rank,
                                         int size, const NcclOptions& settings) override {
    try {
      auto options = c10d::ProcessGroupNCCL::Options::create();
      options->timeout = settings.timeout;
      auto backend = c10::make_intrusive<c10d::ProcessGroupNCCL>(store, rank, size, options);
      backend->eagerConnectSingleDevice(
          torch::Device(torch::kCUDA, static_cast<c10::DeviceIndex>(c10::cuda::current_device())));
      return make_c10d_group(backend, {.table = settings.table});
    } catch (const std::exception& cause) {
      throw Error("rank {} of {}: cannot connect over NCCL: {}", rank, size, cause.what());
    }
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
