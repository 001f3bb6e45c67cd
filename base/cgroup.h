// What the control groups of this process allow, version 1 or 2. `root` is "/" but in tests, where
// a folder plays proc and sys.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace zeroth {

// One controller's group of this process.
struct Cgroup {
  std::filesystem::path directory;  // its files
  std::filesystem::path mount;      // where the hierarchy begins
  bool unified = false;             // version 2
};

// `controller` is "memory" or "cpu". Empty without such a hierarchy.
std::optional<Cgroup> find_cgroup(const std::string& controller,
                                  const std::filesystem::path& root = "/");

// The memory that one group around this process may hold.
struct MemoryLimit {
  std::filesystem::path file;  // that says so
  int64_t bytes = 0;
  int64_t used = 0;  // by its processes; page cache, which would make way, is not counted
};

// Of the groups that have a limit, inside out.
std::vector<MemoryLimit> memory_limits(const std::filesystem::path& root = "/");

// Bytes, the least of these limits; empty: not limited.
std::optional<int64_t> memory_limit(const std::filesystem::path& root = "/");

// Processors' worth of time, the least of all groups around; empty: not limited.
std::optional<double> cpu_quota(const std::filesystem::path& root = "/");

// The number after `key` in a file of lines "key number ...", as memory.events and meminfo are.
std::optional<int64_t> read_counter(const std::filesystem::path& file, const std::string& key);

}  // namespace zeroth
