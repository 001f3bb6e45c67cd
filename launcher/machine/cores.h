// CPU cores: lists of them, the cores local to a GPU, and their partition over ranks.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "launcher/machine/nvml.h"

namespace zeroth::launcher {

// Returns the number in a file of sysfs, or -1 if it has none.
int read_sysfs_number(const std::filesystem::path& file);

// Parses "0-3,8" to 0 1 2 3 8. Throws UsageError on bad syntax, a duplicate core, or a core outside
// `allowed`. Pure.
std::vector<int> parse_core_list(const std::string& text, const std::vector<int>& allowed);

// Splits `cores` into one part per list of `preferred`, the cores on which that part runs best
// (empty: no preference). Sizes differ by at most one. Parts with the same list divide its cores;
// what they then miss comes from the other cores. Without lists the parts are contiguous ranges of
// `cores`. If there are fewer cores than parts, each part gets all of them. Pure.
std::vector<std::vector<int>> split_cores(const std::vector<int>& cores,
                                          const std::vector<std::vector<int>>& preferred);

// Returns the cores of a GPU's NUMA node by the GPU's id, restricted to `cores` and in their order.
// `ids` are those of CUDA_VISIBLE_DEVICES: a number is an index of `gpus`, a prefix of a UUID names
// a GPU. A GPU with an unknown node or unknown cores is absent. `root` is "/" except in tests,
// where a directory replaces sys.
//
// CUDA may number unequal GPUs in another order than NVML unless CUDA_DEVICE_ORDER is PCI_BUS_ID.
// The cores are then those of another GPU, which only costs time.
std::map<std::string, std::vector<int>> numa_cores(const std::vector<std::string>& ids,
                                                   const std::vector<GpuReport::GpuInfo>& gpus,
                                                   const std::vector<int>& cores,
                                                   const std::filesystem::path& root = "/");

}  // namespace zeroth::launcher
