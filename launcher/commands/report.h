// `zeroth report` describes this build and this machine, like DeepSpeed's ds_report.
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

// Makes the report. `zeroth_directory` is the directory of the zeroth executable. Never fails:
// reports what cannot be found as such. The last section, if present, lists what will slow down a
// run or make it fail.
std::vector<ReportSection> make_report(const std::filesystem::path& zeroth_directory,
                                       const LaunchEnvironment& environment);

// Returns a warning if /dev/shm (`shared`) is too small for NCCL, the only user of it, and only
// between several GPUs; empty otherwise. Pure.
std::string shared_memory_warning(size_t gpus, const SpaceInfo& shared);

// Formats names and values in two columns, under their titles. Pure.
std::string format_report(const std::vector<ReportSection>& sections);

}  // namespace zeroth::launcher
