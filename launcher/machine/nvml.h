// The GPUs as reported by NVML, the management library of NVIDIA's driver; does not start CUDA.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace zeroth::launcher {

struct GpuReport {
  struct GpuInfo {
    std::string name;
    std::string uuid;         // "GPU-1c8f..."
    std::string pci_address;  // "0000:3b:00.0", as in sysfs
    int64_t memory_bytes = 0;
    int major = 0, minor = 0;  // compute capability
  };
  std::string driver;         // "570.86.15"
  int cuda_version = 0;       // newest that the driver supports, 12080 for 12.8
  std::vector<GpuInfo> gpus;  // in NVML's order; unavailable values are empty or 0
};

// Returns empty without the library, or if it fails.
std::optional<GpuReport> query_nvml();

}  // namespace zeroth::launcher
