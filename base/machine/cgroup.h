// The limits that the control groups (version 1 or 2) of this process set. `root` is "/" in
// production; in tests it is a directory with fake proc and sys trees.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace zeroth {

// A Cgroup is the control group of this process for one controller.
struct Cgroup {
  std::filesystem::path directory;  // that holds the group's files
  std::filesystem::path mount;      // of the root of the hierarchy
  bool unified = false;             // whether the hierarchy is version 2
};

// Returns the group of `controller`, "memory" or "cpu". Returns nullopt if there is no such
// hierarchy.
std::optional<Cgroup> find_cgroup(const std::string& controller,
                                  const std::filesystem::path& root = "/");

// A MemoryLimit is the memory limit of one group that encloses this process.
struct MemoryLimit {
  std::filesystem::path file;  // that contains the limit
  int64_t bytes = 0;
  int64_t used = 0;  // by the group's processes, without page cache, which the kernel can reclaim
};

// Returns the limits of all enclosing groups that have one, innermost first.
std::vector<MemoryLimit> memory_limits(const std::filesystem::path& root = "/");

// Returns the smallest of these limits in bytes, or nullopt if the memory is not limited.
std::optional<int64_t> memory_limit(const std::filesystem::path& root = "/");

// Returns the smallest CPU quota of all enclosing groups in CPUs' worth of time, or nullopt if
// there is none.
std::optional<double> cpu_quota(const std::filesystem::path& root = "/");

// Returns the number after `key` in a file of "key number ..." lines, such as memory.events and
// meminfo.
std::optional<int64_t> read_counter(const std::filesystem::path& file, const std::string& key);

}  // namespace zeroth
