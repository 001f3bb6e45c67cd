// Tests whether a restarted program saves new checkpoints.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace zeroth::launcher {

// Returns the last value that a program's arguments give to one of these flags; empty: none. Pure.
std::string find_argument(const std::vector<std::string>& command,
                          const std::vector<std::string_view>& flags);

// Returns a text that identifies the newest complete checkpoint of the directory that the program's
// --output or --output_dir names, on the command line or in its only argument, a .json file. The
// text changes when another checkpoint is committed. Empty if there is none, or if this machine
// cannot read it.
std::string newest_checkpoint(const std::vector<std::string>& command);

// Returns whether another checkpoint was committed between these two results of
// newest_checkpoint().
inline bool has_new_checkpoint(const std::string& before, const std::string& after) {
  return !after.empty() && after != before;
}

}  // namespace zeroth::launcher
