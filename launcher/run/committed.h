// What a program that was started again and again has saved: whether it comes further.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace zeroth::launcher {

// The value that a program's arguments give to one of these flags, the last one; empty: none. Pure.
std::string argument_of(const std::vector<std::string>& command,
                        const std::vector<std::string_view>& flags);

// The newest complete checkpoint of the folder that the program's --output or --output_dir names,
// on the command line or in its only argument, a .json file: another text as soon as another
// checkpoint was committed. Empty where there is none, and where this machine cannot tell.
std::string newest_checkpoint(const std::vector<std::string>& command);

// Whether another one was committed between these two.
inline bool has_saved_more(const std::string& before, const std::string& after) {
  return !after.empty() && after != before;
}

}  // namespace zeroth::launcher
