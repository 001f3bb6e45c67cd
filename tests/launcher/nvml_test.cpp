#include "launcher/nvml.h"

#include <doctest/doctest.h>

namespace zeroth::launcher {

TEST_CASE("the count and the report of GPUs agree, with a driver or without") {
  const auto count = count_gpus_by_nvml();
  const auto report = report_gpus_by_nvml();
  REQUIRE(count.has_value() == report.has_value());
  if (!count) {
    MESSAGE("no NVML here: nothing more to compare");
    return;
  }
  CHECK(report->gpus.size() == static_cast<size_t>(*count));
  CHECK_FALSE(report->driver.empty());
  CHECK(report->cuda_version >= 10000);
  for (const GpuReport::Gpu& gpu : report->gpus) {
    CHECK_FALSE(gpu.name.empty());
    CHECK(gpu.memory_bytes > 0);
    CHECK(gpu.major > 0);
  }
}

}  // namespace zeroth::launcher
