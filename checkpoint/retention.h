// What goes from a folder of checkpoints: what dead tries to save left, and what is old.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "checkpoint/file_system.h"

namespace zeroth::checkpoint {

// Removes what tries that did not come to their end left of this user's; a checkpoint that was
// about to be replaced gets its name back. Only for who owns the folder, and saves nothing just
// now.
void clear_leftovers(FileSystem& file_system);

struct RetentionPolicy {
  int64_t newest = 2;                  // so many complete ones stay; 0: all
  std::set<int64_t> steps = {};        // these stay, too
  std::set<std::string> damaged = {};  // names of those that count as not complete
};

// Complete checkpoints that are neither among the newest nor named. Those that are not complete
// stay: what they hold may be all that is left of something.
std::vector<std::string> expired_checkpoints(FileSystem& file_system,
                                             const RetentionPolicy& retention);

// At no moment does a part of one stand under its name.
void remove_checkpoints(FileSystem& file_system, const std::vector<std::string>& names);

}  // namespace zeroth::checkpoint
