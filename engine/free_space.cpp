#include "engine/free_space.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "base/error.h"
#include "base/process_limits.h"
#include "offload/swap_file.h"

namespace zeroth::engine {
namespace {

namespace fs = std::filesystem;

// The folder, or the one in which it will be made.
fs::path nearest_there(fs::path folder) {
  std::error_code ignored;
  while (!fs::exists(folder, ignored) && folder.has_relative_path()) folder = folder.parent_path();
  return folder;
}

uint64_t device_of(const fs::path& folder) {
  struct stat status {};
  if (::stat(folder.c_str(), &status) != 0) {
    throw Error("cannot look at {}: {}", folder.string(), system_reason(errno));
  }
  return status.st_dev;
}

}  // namespace

std::optional<int64_t> free_disk_bytes(const fs::path& folder) {
  try {
    const auto free = offload::free_bytes(nearest_there(fs::absolute(folder)));
    return free ? std::optional(static_cast<int64_t>(*free)) : std::nullopt;
  } catch (const Error&) {
    return std::nullopt;
  }
}

FreeSpace free_space(const configs::ZeroConfig& config, const zero::MemoryPlan& memory, int ranks,
                     const fs::path& root) {
  FreeSpace left{.ranks = ranks, .host = free_memory(root), .disks = {}};
  const auto look = [&](const char* section, const std::string& folder, int64_t bytes) {
    if (folder.empty()) return;
    const fs::path there = nearest_there(fs::absolute(folder));
    if (bytes > 0 && ::access(there.c_str(), W_OK | X_OK) != 0) {
      throw Error("zero_optimization.{}.nvme_path: {}: cannot write to {}: {}", section, folder,
                  there.string(), system_reason(errno));
    }
    const auto free = offload::free_bytes(there);
    if (!free) return;
    left.disks[folder] = {.free = static_cast<int64_t>(*free),
                          .in_memory = offload::is_in_memory(there),
                          .device = device_of(there)};
  };
  look("offload_optimizer", config.offload_optimizer.nvme_path,
       memory.masters.file + memory.states.file);
  look("offload_param", config.offload_param.nvme_path, memory.parameters.file);
  return left;
}

}  // namespace zeroth::engine
