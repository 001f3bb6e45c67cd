// The properties of this machine for `zeroth report`, found without torch. `root` is "/" except in
// tests, where a directory replaces proc.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

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

}  // namespace zeroth::launcher
