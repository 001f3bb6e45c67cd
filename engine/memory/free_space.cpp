#include "engine/memory/free_space.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "base/error.h"
#include "base/machine/process_limits.h"
#include "offload/swap_file.h"

namespace zeroth::engine {
namespace {

namespace fs = std::filesystem;

// Returns the directory, or the existing one in which it will be made.
fs::path nearest_existing(fs::path directory) {
  std::error_code ignored;
  while (!fs::exists(directory, ignored) && directory.has_relative_path())
    directory = directory.parent_path();
  return directory;
}

uint64_t device_of(const fs::path& directory) {
  struct stat status {};
  if (::stat(directory.c_str(), &status) != 0) {
    throw Error("cannot access {}: {}", directory.string(), system_reason(errno));
  }
  return status.st_dev;
}

}  // namespace

std::optional<int64_t> free_disk_bytes(const fs::path& directory) {
  try {
    return offload::free_bytes(nearest_existing(fs::absolute(directory)));
  } catch (const Error&) {
    return std::nullopt;
  }
}

std::array<FileNeed, 2> file_needs(const configs::ZeroConfig& config,
                                   const zero::MemoryPlan& memory) {
  return {{{"offload_optimizer", config.offload_optimizer.nvme_path,
            memory.masters.file + memory.states.file},
           {"offload_param", config.offload_param.nvme_path, memory.parameters.file}}};
}

FreeSpace free_space(const configs::ZeroConfig& config, const zero::MemoryPlan& memory, int ranks,
                     const fs::path& root) {
  FreeSpace left{.ranks = ranks, .host = free_memory(root), .disks = {}};
  for (const auto& [section, directory, bytes] : file_needs(config, memory)) {
    if (directory.empty()) continue;
    const fs::path existing = nearest_existing(fs::absolute(directory));
    if (bytes > 0 && ::access(existing.c_str(), W_OK | X_OK) != 0) {
      throw Error("zero_optimization.{}.nvme_path: {}: cannot write to {}: {}", section, directory,
                  existing.string(), system_reason(errno));
    }
    const auto free = offload::free_bytes(existing);
    if (!free) continue;
    left.disks[directory] = {.free = static_cast<int64_t>(*free),
                             .in_memory = offload::is_in_memory(existing),
                             .device = device_of(existing)};
  }
  return left;
}

}  // namespace zeroth::engine
