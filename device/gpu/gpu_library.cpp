// All CUDA code of libzeroth_gpu.so. The programs do not link it; they load it if a GPU is used
// (gpu_loader.cpp).
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAFunctions.h>

#include "base/error.h"
#include "device/gpu.h"

namespace zeroth::device {
namespace {

class CudaGpu final : public Gpu {
 public:
  int device_count() const override { return c10::cuda::device_count(); }

  GpuDriver driver() const override {
    GpuDriver driver;
    int count = 0;
    const cudaError_t error = cudaGetDeviceCount(&count);
    if (error != cudaSuccess) driver.error = cudaGetErrorString(error);
    (void)cudaDriverGetVersion(&driver.supported);
    (void)cudaRuntimeGetVersion(&driver.needed);
    (void)cudaGetLastError();
    return driver;
  }

  int compute_capability(int index) const override {
    const cudaDeviceProp& properties =
        *at::cuda::getDeviceProperties(static_cast<c10::DeviceIndex>(index));
    return properties.major * 10 + properties.minor;
  }

  std::string pin(std::span<std::byte> memory) override {
    const cudaError_t error =
        cudaHostRegister(memory.data(), memory.size(), cudaHostRegisterPortable);
    if (error == cudaSuccess) return "";
    (void)cudaGetLastError();  // otherwise the next call that checks reports it as its own
    return fmt::format("{} bytes: {}", memory.size(), cudaGetErrorString(error));
  }

  void unpin(std::span<std::byte> memory) noexcept override {
    // At the end of a process the driver may be gone, and the lock with it.
    if (cudaHostUnregister(memory.data()) != cudaSuccess) (void)cudaGetLastError();
  }

 private:
  void select_device(int index) override {
    at::globalContext().lazyInitDevice(c10::DeviceType::CUDA);
    c10::cuda::set_device(static_cast<c10::DeviceIndex>(index));
  }
};

}  // namespace
}  // namespace zeroth::device

extern "C" __attribute__((visibility("default"))) zeroth::device::Gpu* zeroth_gpu_entry() {
  static zeroth::device::CudaGpu gpu;
  return &gpu;
}

extern "C" __attribute__((visibility("default"))) const char* zeroth_gpu_stamp() {
  return zeroth::device::kGpuStamp;
}
