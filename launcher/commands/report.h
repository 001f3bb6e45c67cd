// `zeroth report` describes this build and this machine, like DeepSpeed's ds_report, without torch.
// `root` is "/" except in tests, where a directory replaces proc.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "launcher/machine/machine.h"

namespace zeroth::launcher {

struct CpuInfo {
  std::string model;  // empty: unknown
  int threads = 0;    // of the whole machine
  int cores = 0;      // physical ones; 0: unknown
  int sockets = 0;
  std::vector<std::string> instructions;  // instruction sets relevant to matrix products
};
CpuInfo probe_cpu(const std::filesystem::path& root = "/");

struct SpaceInfo {
  int64_t total_bytes = 0;
  int64_t free_bytes = 0;  // available to this user
  std::string type;        // of the file system, as "ext4"; empty: unknown
};
// Probes the file system that holds `path`. Returns zeros if the query fails.
SpaceInfo probe_space(const std::filesystem::path& path, const std::filesystem::path& root = "/");

struct ProbeResult {
  bool good = false;
  std::string text;
};
// Tries to create an io_uring.
ProbeResult probe_io_uring();

// Reports the limit on locked memory, which pinned buffers and io_uring require.
ProbeResult probe_locked_memory();

// Returns PRETTY_NAME of os-release and the kernel.
std::string describe_system(const std::filesystem::path& root = "/");

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
