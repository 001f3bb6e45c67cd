#include "launcher/machine/nvml.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <array>

namespace zeroth::launcher {
namespace {

using Device = void*;  // nvmlDevice_t

struct Memory {  // nvmlMemory_t
  unsigned long long total, free, used;
};

struct PciInfo {  // nvmlPciInfo_t, of version 3
  std::array<char, 16> legacy_id;
  unsigned domain, bus, device, device_id, subsystem_id;
  std::array<char, 32> id;
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

  // Returns whether the function exists and returns NVML_SUCCESS.
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

GpuReport::GpuInfo describe(const Nvml& nvml, unsigned index) {
  GpuReport::GpuInfo gpu;
  Device device = nullptr;
  if (!nvml.call("nvmlDeviceGetHandleByIndex_v2", index, &device)) return gpu;
  std::array<char, 96> text{};
  const auto size = static_cast<unsigned>(text.size());
  if (nvml.call("nvmlDeviceGetName", device, text.data(), size)) gpu.name = text.data();
  if (nvml.call("nvmlDeviceGetUUID", device, text.data(), size)) gpu.uuid = text.data();
  PciInfo pci{};
  if (nvml.call("nvmlDeviceGetPciInfo_v3", device, &pci))
    gpu.pci_address = fmt::format("{:04x}:{:02x}:{:02x}.0", pci.domain, pci.bus, pci.device);
  Memory memory{};
  if (nvml.call("nvmlDeviceGetMemoryInfo", device, &memory))
    gpu.memory_bytes = static_cast<int64_t>(memory.total);
  nvml.call("nvmlDeviceGetCudaComputeCapability", device, &gpu.major, &gpu.minor);
  return gpu;
}

}  // namespace

std::optional<GpuReport> query_nvml() {
  const Nvml nvml;
  unsigned count = 0;
  if (!nvml.works() || !nvml.call("nvmlDeviceGetCount_v2", &count)) return std::nullopt;
  GpuReport report;
  std::array<char, 80> driver{};
  const auto size = static_cast<unsigned>(driver.size());
  if (nvml.call("nvmlSystemGetDriverVersion", driver.data(), size)) report.driver = driver.data();
  nvml.call("nvmlSystemGetCudaDriverVersion_v2", &report.cuda_version);
  for (unsigned i = 0; i < count; ++i) report.gpus.push_back(describe(nvml, i));
  return report;
}

}  // namespace zeroth::launcher
