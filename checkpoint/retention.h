// Removes old checkpoints, and leftovers of failed saves, from a directory.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "checkpoint/file_system.h"

namespace zeroth::checkpoint {

// Removes what unfinished saves left that this user owns, and restores the name of a checkpoint
// that was about to be replaced. Called only by the owner of the directory, while no save is
// running.
void clear_leftovers(FileSystem& file_system);

struct RetentionPolicy {
  int64_t newest = 2;                  // number of newest complete ones to keep; 0: all
  std::set<int64_t> steps = {};        // also kept
  std::set<std::string> damaged = {};  // names of those that count as incomplete
};

// Returns the complete checkpoints that are neither among the newest nor listed. Keeps incomplete
// ones, because they may hold the only remaining copy of some data.
std::vector<std::string> expired_checkpoints(FileSystem& file_system,
                                             const RetentionPolicy& retention);

// Removes checkpoints. A partially removed checkpoint never appears under its name.
void remove_checkpoints(FileSystem& file_system, const std::vector<std::string>& names);

}  // namespace zeroth::checkpoint
