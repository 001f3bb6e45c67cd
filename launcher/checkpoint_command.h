// `zeroth checkpoint list|show|verify|prune DIR`: what lies in a folder of checkpoints. Starts
// nothing.
#pragma once

#include <string>
#include <vector>

namespace zeroth::launcher {

struct CheckpointAnswer {
  std::string text;  // to be printed
  int status = 0;    // 1: something is not complete or damaged
};

// `arguments` behind checkpoint. Throws UsageError for those it cannot understand, Error for a
// folder that is not there or has no checkpoint of the kind that is asked for.
CheckpointAnswer checkpoint_command(const std::vector<std::string>& arguments);

}  // namespace zeroth::launcher
