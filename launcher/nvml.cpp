#include "launcher/nvml.h"

#include <dlfcn.h>

#include <array>

namespace zeroth::launcher {
namespace {

using Device = void*;  // nvmlDevice_t

struct Memory {  // nvmlMemory_t
  unsigned long long total, free, used;
};

class Nvml {
 public:
  Nvml() {
    library_ = ::dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    works_ = call("nvmlInit_v2");
  }
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;
  ~Nvml() {
    if (works_) call("nvmlShutdown");
    if (library_ != nullptr) ::dlclose(library_);
  }

  bool works() const { return works_; }

  // Whether the function is there and returns NVML_SUCCESS.
  template <typename... Arguments>
  bool call(const char* function, Arguments... arguments) const {
    if (library_ == nullptr) return false;
    const auto entry = reinterpret_cast<int (*)(Arguments...)>(::dlsym(library_, function));
    return entry != nullptr && entry(arguments...) == 0;
  }

 private:
  void* library_ = nullptr;
  bool works_ = false;
};

std::optional<unsigned> count(const Nvml& nvml) {
  unsigned found = 0;
  if (!nvml.works() || !nvml.call("nvmlDeviceGetCount_v2", &found)) return std::nullopt;
  return found;
}

std::optional<GpuReport::Gpu> describe(const Nvml& nvml, unsigned index) {
  Device device = nullptr;
  if (!nvml.call("nvmlDeviceGetHandleByIndex_v2", index, &device)) return std::nullopt;
  GpuReport::Gpu gpu;
  std::array<char, 96> name{};
  const auto size = static_cast<unsigned>(name.size());
  if (nvml.call("nvmlDeviceGetName", device, name.data(), size)) gpu.name = name.data();
  Memory memory{};
  if (nvml.call("nvmlDeviceGetMemoryInfo", device, &memory))
    gpu.memory_bytes = static_cast<int64_t>(memory.total);
  nvml.call("nvmlDeviceGetCudaComputeCapability", device, &gpu.major, &gpu.minor);
  return gpu;
}

}  // namespace

std::optional<int> count_gpus_by_nvml() {
  const auto found = count(Nvml());
  return found ? std::optional<int>(static_cast<int>(*found)) : std::nullopt;
}

std::optional<GpuReport> report_gpus_by_nvml() {
  const Nvml nvml;
  const auto found = count(nvml);
  if (!found) return std::nullopt;
  GpuReport report;
  std::array<char, 80> driver{};
  const auto size = static_cast<unsigned>(driver.size());
  if (nvml.call("nvmlSystemGetDriverVersion", driver.data(), size)) report.driver = driver.data();
  nvml.call("nvmlSystemGetCudaDriverVersion_v2", &report.cuda_version);
  for (unsigned i = 0; i < *found; ++i)
    if (const auto gpu = describe(nvml, i)) report.gpus.push_back(*gpu);
  return report;
}

}  // namespace zeroth::launcher
