#include "trainer/report/peak_memory.h"

#include "device/memory_use.h"

namespace zeroth::trainer {
namespace {

constexpr double kMib = 1024.0 * 1024.0;

}  // namespace

PeakMemory own_peak_memory(torch::Device device) {
  const device::MemoryUse use = device::memory_use(device);
  return {.rss_mib = static_cast<double>(use.host_peak) / kMib,
          .gpu_mib = static_cast<double>(use.device_peak) / kMib};
}

PeakMemory largest_peak_memory(comm::Mesh& mesh) {
  const PeakMemory own = own_peak_memory(mesh.device());
  const auto values = torch::tensor({own.rss_mib, own.gpu_mib},
                                    torch::dtype(torch::kFloat64).device(mesh.device()));
  mesh.data().all_reduce(values, comm::Reduce::kMax, "peak memory").wait();
  const auto largest = values.cpu();
  return {.rss_mib = largest[0].item<double>(), .gpu_mib = largest[1].item<double>()};
}

}  // namespace zeroth::trainer
