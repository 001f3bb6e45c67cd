#include "trainer/machine_room.h"

#include "offload/swap_file.h"

namespace zeroth::trainer {
namespace {

namespace fs = std::filesystem;

// The folder, or the one in which it will be made.
fs::path nearest_there(fs::path folder) {
  std::error_code ignored;
  while (!fs::exists(folder, ignored) && folder.has_relative_path()) folder = folder.parent_path();
  return folder;
}

}  // namespace

MachineRoom machine_room(const configs::ZeroConfig& config, int ranks, const fs::path& root) {
  MachineRoom room{.ranks = ranks, .host = host_room(root), .disks = {}};
  const auto add = [&](configs::RestingPlace place, const std::string& folder) {
    if (place != configs::RestingPlace::kNvme) return;
    const fs::path there = nearest_there(fs::absolute(folder));
    const auto free = offload::free_bytes(there);
    if (!free) return;
    room.disks[folder] = {static_cast<int64_t>(*free), offload::is_in_memory(there)};
  };
  add(config.offload_optimizer.device, config.offload_optimizer.nvme_path);
  add(config.offload_param.device, config.offload_param.nvme_path);
  return room;
}

}  // namespace zeroth::trainer
