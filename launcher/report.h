// `zeroth report`: what this build and this machine offer, as DeepSpeed's ds_report tells it.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "launcher/machine/inventory.h"
#include "launcher/machine/machine.h"

namespace zeroth::launcher {

struct ReportSection {
  std::string title;
  std::vector<std::pair<std::string, std::string>> lines;  // name, value
};

// `zeroth_directory` is that of zeroth itself. Fails on nothing: what cannot be found is said to be
// so. The last section, where there is one, lists what will slow a run or make it fail.
std::vector<ReportSection> make_report(const std::filesystem::path& zeroth_directory,
                                       const LaunchEnvironment& environment);

// That /dev/shm (`shared`) is too small for NCCL, the only one that uses it, and only between
// several GPUs; empty where it is not. Pure.
std::string shared_memory_warning(size_t gpus, const SpaceInfo& shared);

// Names and values in two columns, under their titles. Pure.
std::string format_report(const std::vector<ReportSection>& sections);

}  // namespace zeroth::launcher
