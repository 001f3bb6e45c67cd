// Whether a program that is restarted saves new checkpoints.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace zeroth::launcher {

// Returns the last value that a program's arguments give to one of these flags; empty: none. Pure.
std::string find_argument(const std::vector<std::string>& command,
                          const std::vector<std::string_view>& flags);

// Identifies the newest complete checkpoint of the folder that the program's --output or
// --output_dir names, on the command line or in its only argument, a .json file: the text changes
// when another checkpoint is committed. Empty where there is none, or this machine cannot read it.
std::string newest_checkpoint(const std::vector<std::string>& command);

// Whether another checkpoint was committed between these two results of newest_checkpoint().
inline bool has_new_checkpoint(const std::string& before, const std::string& after) {
  return !after.empty() && after != before;
}

}  // namespace zeroth::launcher
