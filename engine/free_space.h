// What this machine has left for a run, before anything of it is allocated.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>

#include "base/host_limits.h"
#include "configs/config.h"
#include "zero/memory_plan.h"

namespace zeroth::engine {

struct FreeSpace {
  int ranks = 1;                   // of the run, on this machine: they share what follows
  std::optional<FreeMemory> host;  // none where the system does not tell
  struct DiskSpace {
    int64_t free = 0;        // bytes
    bool in_memory = false;  // tmpfs: what lies there takes host memory
    uint64_t device = 0;     // of the file system: folders with the same one share what is free
  };
  std::map<std::string, DiskSpace> disks;  // by nvme_path, also one that is not in use yet
};

// For a run of `ranks` with `memory` each. `root` is "/" but in tests. Throws an Error that names
// the key for a directory that cannot be made or written to and is to hold files, and one for a
// directory that cannot be looked at.
FreeSpace free_space(const configs::ZeroConfig& config, const zero::MemoryPlan& memory, int ranks,
                     const std::filesystem::path& root = "/");

// Free bytes of the disk on which `directory` is, or will be made. Empty where the system does not
// report them.
std::optional<int64_t> free_disk_bytes(const std::filesystem::path& directory);

}  // namespace zeroth::engine
