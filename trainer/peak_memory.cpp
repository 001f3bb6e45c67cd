#include "trainer/peak_memory.h"

#include "base/host_limits.h"
#include "comm/gpu.h"

namespace zeroth::trainer {
namespace {

constexpr double kMib = 1024.0 * 1024.0;

double peak_gpu_mib(torch::Device device) {
  if (!device.is_cuda()) return 0;
  return static_cast<double>(comm::load_gpu().peak_allocated_bytes(device.index())) / kMib;
}

}  // namespace

PeakMemory own_peak_memory(torch::Device device) {
  return {.rss_mib = static_cast<double>(own_bytes("VmHWM:")) / kMib,
          .gpu_mib = peak_gpu_mib(device)};
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
