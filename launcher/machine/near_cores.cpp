#include "launcher/machine/near_cores.h"

#include <fmt/format.h>

#include <charconv>
#include <fstream>

namespace zeroth::launcher {
namespace {

namespace fs = std::filesystem;
using Gpu = GpuReport::Gpu;

// Null if `id` names no GPU, or more than one.
const Gpu* find_gpu(const std::string& id, const std::vector<Gpu>& gpus) {
  size_t index = 0;
  const auto parsed = std::from_chars(id.data(), id.data() + id.size(), index);
  if (parsed.ec == std::errc() && parsed.ptr == id.data() + id.size())
    return index < gpus.size() ? &gpus[index] : nullptr;
  const Gpu* found = nullptr;
  for (const Gpu& gpu : gpus) {
    if (!gpu.uuid.starts_with(id)) continue;
    if (found != nullptr) return nullptr;
    found = &gpu;
  }
  return found;
}

// Of a machine with one node the kernel may say -1.
int numa_node(const Gpu& gpu, const fs::path& root) {
  std::ifstream in(root / "sys/bus/pci/devices" / gpu.pci_address / "numa_node");
  int node = -1;
  in >> node;
  return in ? node : -1;
}

}  // namespace

std::map<std::string, std::vector<int>> near_cores(const std::vector<std::string>& ids,
                                                   const std::vector<Gpu>& gpus,
                                                   const std::vector<int>& cores,
                                                   const fs::path& root) {
  std::map<std::string, std::vector<int>> near;
  for (const std::string& id : ids) {
    const Gpu* gpu = find_gpu(id, gpus);
    const int node = gpu == nullptr ? -1 : numa_node(*gpu, root);
    if (node < 0) continue;
    std::error_code ignored;
    for (int core : cores)
      if (fs::exists(root / fmt::format("sys/devices/system/cpu/cpu{}/node{}", core, node),
                     ignored))
        near[id].push_back(core);
  }
  return near;
}

}  // namespace zeroth::launcher
