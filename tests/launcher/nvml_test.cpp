#include "launcher/machine/nvml.h"

#include <doctest/doctest.h>

#include <filesystem>

namespace zeroth::launcher::nvml_test {

TEST_CASE("GPUs are described as far as a rank's place needs, with a driver or without") {
  const auto report = query_nvml();
  if (!report) {
    MESSAGE("no NVML here: nothing to look at");
    return;
  }
  CHECK_FALSE(report->driver.empty());
  CHECK(report->cuda_version >= 10000);
  for (const GpuReport::GpuInfo& gpu : report->gpus) {
    CHECK_FALSE(gpu.name.empty());
    CHECK(gpu.uuid.starts_with("GPU-"));
    CHECK(std::filesystem::exists("/sys/bus/pci/devices/" + gpu.pci_address + "/numa_node"));
    CHECK(gpu.memory_bytes > 0);
    CHECK(gpu.major > 0);
  }
}

}  // namespace zeroth::launcher::nvml_test
