// Free memory and disk space of this node, measured before a run allocates anything.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>

#include "base/machine/host_limits.h"
#include "configs/config.h"
#include "zero/memory_plan.h"

namespace zeroth::engine {

struct FreeSpace {
  int ranks = 1;                   // of the run on this node, which share the space below
  std::optional<FreeMemory> host;  // unset if the system does not report it
  struct DiskSpace {
    int64_t free = 0;        // bytes
    bool in_memory = false;  // tmpfs: its files use CPU memory
    uint64_t device = 0;     // file system id: directories with the same one share its space
  };
  std::map<std::string, DiskSpace> disks;  // by nvme_path, even if it is not in use yet
};

// FileNeed is the bytes of one rank's files in a directory.
struct FileNeed {
  const char* section;  // of zero_optimization
  std::string directory;
  int64_t bytes;
};
std::array<FileNeed, 2> file_needs(const configs::ZeroConfig& config,
                                   const zero::MemoryPlan& memory);

// Returns the free space for a run of `ranks` with `memory` each. `root` is "/" except in tests.
// Throws an Error that names the key for a directory that is to hold files and cannot be made or
// written to, and one for a directory that cannot be inspected.
FreeSpace free_space(const configs::ZeroConfig& config, const zero::MemoryPlan& memory, int ranks,
                     const std::filesystem::path& root = "/");

// Returns the free bytes of the disk that holds `directory`, or will hold it; nullopt if the system
// does not report them.
std::optional<int64_t> free_disk_bytes(const std::filesystem::path& directory);

}  // namespace zeroth::engine
