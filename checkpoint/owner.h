// The owner of a directory of checkpoints: the process that saves into it and removes old
// checkpoints and leftovers of failed saves. Each owner has a larger generation than its
// predecessors, so one that was presumed dead and wakes up detects its successor.
#pragma once

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "checkpoint/file_system.h"

namespace zeroth::checkpoint {

class Owner {
 public:
  // Claims the directory: from now on, earlier owners cannot commit. `description` appears in their
  // error messages. Other processes may claim it at the same time: each gets a generation of its
  // own.
  static Owner claim(std::shared_ptr<FileSystem> file_system, const std::string& description);

  int64_t generation() const { return generation_; }
  // Throws an Error with both generations if the directory has a later owner.
  void check() const;

 private:
  Owner(std::shared_ptr<FileSystem> file_system, int64_t generation)
      : file_system_(std::move(file_system)), generation_(generation) {}

  std::shared_ptr<FileSystem> file_system_;
  int64_t generation_;
};

// Returns "process 17 on host, since 2026-01-31 12:00:00 UTC".
std::string describe_this_process();

// Removes what unfinished saves left that this user owns, and restores the name of a checkpoint
// that was about to be replaced. Called only by the owner of the directory, while no save is
// running.
void cleanup_leftovers(FileSystem& file_system);

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
