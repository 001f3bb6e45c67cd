// CPU cores: lists of them, those that are near to a GPU, and their division over ranks.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "launcher/machine/nvml.h"

namespace zeroth::launcher {

// "0-3,8" -> 0 1 2 3 8. Throws UsageError on bad syntax, a repeated core and a core outside
// `allowed`. Pure.
std::vector<int> parse_core_list(const std::string& text, const std::vector<int>& allowed);

// One part for each list of `near`, whose cores the part had best run on (empty: none is better
// than another). Sizes differ by at most one. Parts of one list share its cores; what they then
// lack comes from the rest. Without lists these are contiguous ranges of `cores`. With fewer cores
// than parts each part gets all of them. Pure.
std::vector<std::vector<int>> split_cores(const std::vector<int>& cores,
                                          const std::vector<std::vector<int>>& preferred);

// Cores of its NUMA node by the id of a GPU, in the order of `cores` and none but these. `ids` are
// those of CUDA_VISIBLE_DEVICES: numbers count `gpus`, the beginning of a UUID names one. A GPU
// whose node or whose cores are not known is absent. `root` is "/" but in tests, where a folder
// plays sys.
//
// CUDA may number unequal GPUs in another order than NVML unless CUDA_DEVICE_ORDER is PCI_BUS_ID:
// cores are then those of another GPU, which costs time alone.
std::map<std::string, std::vector<int>> numa_cores(const std::vector<std::string>& ids,
                                                   const std::vector<GpuReport::GpuInfo>& gpus,
                                                   const std::vector<int>& cores,
                                                   const std::filesystem::path& root = "/");

}  // namespace zeroth::launcher
