// Which cores are nearest to a GPU: those of its NUMA node.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "launcher/machine/nvml.h"

namespace zeroth::launcher {

// Cores by the id of a GPU, in the order of `cores` and none but these. `ids` are those of
// CUDA_VISIBLE_DEVICES: numbers count `gpus`, the beginning of a UUID names one. A GPU whose node
// or whose cores are not known is absent. `root` is "/" but in tests, where a folder plays sys.
//
// CUDA may number unequal GPUs in another order than NVML unless CUDA_DEVICE_ORDER is PCI_BUS_ID:
// cores are then those of another GPU, which costs time alone.
std::map<std::string, std::vector<int>> near_cores(const std::vector<std::string>& ids,
                                                   const std::vector<GpuReport::Gpu>& gpus,
                                                   const std::vector<int>& cores,
                                                   const std::filesystem::path& root = "/");

}  // namespace zeroth::launcher
