#include "checkpoint/retention.h"

#include <algorithm>
#include <tuple>

#include "checkpoint/find.h"
#include "checkpoint/names.h"

namespace zeroth::checkpoint {

void clear_leftovers(Disk& disk) {
  for (const Entry& entry : disk.list("")) {
    if (!entry.ours) continue;
    if (const auto step = step_of_old(entry.name)) {
      if (!holds(disk, "", step_name(*step))) {
        disk.rename(entry.name, step_name(*step));
        disk.sync_folder("");
        continue;
      }
      remove_checkpoints(disk, {entry.name});
    } else if (entry.name.starts_with(kTemporary) || entry.name.starts_with(kTrash)) {
      remove_tree(disk, entry.name);
    }
  }
}

std::vector<std::string> to_be_removed(Disk& disk, const Retention& retention) {
  std::vector<std::string> names;
  if (retention.newest == 0) return names;
  std::vector<Found> found = list_checkpoints(disk);
  std::erase_if(found, [&](const Found& one) {
    return !one.complete() || retention.damaged.contains(one.name);
  });
  std::sort(found.begin(), found.end(), [](const Found& a, const Found& b) {
    return std::tie(a.attempt, a.step) > std::tie(b.attempt, b.step);
  });
  for (size_t i = static_cast<size_t>(retention.newest); i < found.size(); ++i) {
    if (!retention.steps.contains(found[i].step)) names.push_back(found[i].name);
  }
  return names;
}

void remove_checkpoints(Disk& disk, const std::vector<std::string>& names) {
  std::vector<std::string> trash;
  for (const std::string& name : names) {
    std::string gone = std::string(kTrash) + name;
    remove_tree(disk, gone);  // of an end in the middle of this
    disk.rename(name, gone);
    trash.push_back(std::move(gone));
  }
  // The new names are on the disk before the first byte goes.
  if (!trash.empty()) disk.sync_folder("");
  for (const std::string& name : trash) remove_tree(disk, name);
}

}  // namespace zeroth::checkpoint
