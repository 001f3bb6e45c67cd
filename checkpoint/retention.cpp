#include "checkpoint/retention.h"

#include <algorithm>
#include <tuple>

#include "checkpoint/find.h"
#include "checkpoint/names.h"

namespace zeroth::checkpoint {

void clear_leftovers(FileSystem& file_system) {
  for (const DirectoryEntry& entry : file_system.list("")) {
    if (!entry.ours) continue;
    if (const auto step = parse_old_step(entry.name)) {
      if (!exists(file_system, "", step_name(*step))) {
        file_system.rename(entry.name, step_name(*step));
        file_system.sync_directory("");
        continue;
      }
      remove_checkpoints(file_system, {entry.name});
    } else if (entry.name.starts_with(kTemporary) || entry.name.starts_with(kTrash)) {
      remove_tree(file_system, entry.name);
    }
  }
}

std::vector<std::string> expired_checkpoints(FileSystem& file_system,
                                             const RetentionPolicy& retention) {
  std::vector<std::string> names;
  if (retention.newest == 0) return names;
  std::vector<CheckpointInfo> found = list_checkpoints(file_system);
  std::erase_if(found, [&](const CheckpointInfo& one) {
    return !one.complete() || retention.damaged.contains(one.name);
  });
  std::sort(found.begin(), found.end(), [](const CheckpointInfo& a, const CheckpointInfo& b) {
    return std::tie(a.attempt, a.step) > std::tie(b.attempt, b.step);
  });
  for (size_t i = static_cast<size_t>(retention.newest); i < found.size(); ++i) {
    if (!retention.steps.contains(found[i].step)) names.push_back(found[i].name);
  }
  return names;
}

void remove_checkpoints(FileSystem& file_system, const std::vector<std::string>& names) {
  std::vector<std::string> trash;
  for (const std::string& name : names) {
    std::string gone = std::string(kTrash) + name;
    remove_tree(file_system, gone);  // left by a crash in the middle of a removal
    file_system.rename(name, gone);
    trash.push_back(std::move(gone));
  }
  // Make the new names durable before the first byte is removed.
  if (!trash.empty()) file_system.sync_directory("");
  for (const std::string& name : trash) remove_tree(file_system, name);
}

}  // namespace zeroth::checkpoint
