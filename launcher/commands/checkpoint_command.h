// `zeroth checkpoint list|show|verify|prune DIR` lists, shows, verifies or removes the checkpoints
// of a directory. It starts nothing.
#pragma once

#include <string>
#include <vector>

namespace zeroth::launcher {

struct CheckpointAnswer {
  std::string text;  // to be printed
  int status = 0;    // 1: a checkpoint is incomplete or damaged
};

// Runs checkpoint with the `arguments` that follow it. Throws UsageError if they are invalid, Error
// if the directory is missing or has no checkpoint of the requested kind.
CheckpointAnswer checkpoint_command(const std::vector<std::string>& arguments);

}  // namespace zeroth::launcher
