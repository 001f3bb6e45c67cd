// What `zeroth report` finds on this machine, without torch. `root` is "/" but in tests, where a
// folder plays proc.
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
  std::vector<std::string> instructions;  // those that matter to matrix products
};
CpuInfo probe_cpu(const std::filesystem::path& root = "/");

struct SpaceInfo {
  int64_t total_bytes = 0;
  int64_t free_bytes = 0;  // to this user
  std::string type;        // of the file system, as "ext4"; empty: unknown
};
// Of the file system that holds `path`. Zeros where that cannot be asked.
SpaceInfo probe_space(const std::filesystem::path& path, const std::filesystem::path& root = "/");

struct ProbeResult {
  bool good = false;
  std::string text;
};
// Tries to make an io_uring.
ProbeResult probe_io_uring();

// The limit on locked memory, which pinned buffers and io_uring need.
ProbeResult probe_locked_memory();

// PRETTY_NAME of os-release, kernel.
std::string describe_system(const std::filesystem::path& root = "/");

}  // namespace zeroth::launcher
