#include "checkpoint/owner.h"

#include <fmt/chrono.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <ctime>
#include <tuple>

#include "base/machine/machine_id.h"
#include "base/text/printable.h"
#include "checkpoint/find.h"
#include "checkpoint/names.h"

namespace zeroth::checkpoint {
namespace {

constexpr int64_t kMaxWords = 1000;

int64_t newest_generation(const std::vector<DirectoryEntry>& entries) {
  int64_t newest = 0;
  for (const DirectoryEntry& entry : entries) {
    newest = std::max(newest, parse_owner_generation(entry.name).value_or(0));
  }
  return newest;
}

std::string owner_name(int64_t generation) {
  return fmt::format("{}{}", kOwner, generation);
}

// Returns the generation of the next owner, larger than those of all owners and of all complete
// checkpoints, because a copied directory may have no owner's file. Throws an Error that names the
// file to remove if there is no larger generation.
int64_t next_generation(FileSystem& file_system) {
  const int64_t owner = newest_generation(file_system.list(""));
  int64_t newest = owner;
  std::string where = owner_name(owner);
  for (const CheckpointInfo& found : list_checkpoints(file_system)) {
    if (found.attempt.generation <= newest) continue;
    newest = found.attempt.generation;
    where = fmt::format("the attempt of {}", found.name);
  }
  if (newest < kMaxCount) return newest + 1;
  throw Error(
      "{} cannot have another owner: the generation of {} is {}, the maximum. Move that out of the "
      "folder while no run saves there.",
      file_system.path().string(), where, newest);
}

}  // namespace

std::string describe_this_process() {
  return fmt::format("process {} on {}, since {:%Y-%m-%d %H:%M:%S} UTC", ::getpid(), machine_name(),
                     fmt::gmtime(std::time(nullptr)));
}

Owner Owner::claim(std::shared_ptr<FileSystem> file_system, const std::string& description) {
  while (true) {
    const int64_t generation = next_generation(*file_system);
    try {
      write_text(*file_system, owner_name(generation), description);
    } catch (const FileSystemError& error) {
      if (error.reason() == EEXIST) continue;  // another process was first
      throw;
    }
    file_system->sync_directory("");  // before anything is saved under this generation
    const std::vector<DirectoryEntry> entries = file_system->list("");
    // A later owner removes the file of an earlier one, whose generation could then be assigned a
    // second time.
    if (newest_generation(entries) > generation) continue;
    for (const DirectoryEntry& entry : entries) {
      if (parse_owner_generation(entry.name).value_or(generation) < generation)
        file_system->remove_file(entry.name);
    }
    return Owner(std::move(file_system), generation);
  }
}

void Owner::check() const {
  const int64_t newest = newest_generation(file_system_->list(""));
  if (newest == generation_) return;
  std::string description;
  try {
    description = read_text(*file_system_, owner_name(newest), kMaxWords);
  } catch (const Error&) {
    // The owner's file has no readable description.
  }
  if (newest < generation_) {
    throw Error("{} has lost {}: another process removes its files", file_system_->path().string(),
                owner_name(generation_));
  }
  throw Error(
      "{} now belongs to another run (generation {}{}{}; this run has {}): nothing is saved there",
      file_system_->path().string(), newest, description.empty() ? "" : ": ",
      shortened(description), generation_);
}

void cleanup_leftovers(FileSystem& file_system) {
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
