// CPU cores: lists of them, their division over ranks, and the affinity of a process.
#pragma once

#include <string>
#include <vector>

namespace zeroth::launcher {

// "0-3,8" -> 0 1 2 3 8. Throws UsageError on bad syntax, a repeated core and a core outside
// `allowed`. Pure.
std::vector<int> parse_core_list(const std::string& text, const std::vector<int>& allowed);

// Contiguous ranges whose sizes differ by at most one; with fewer cores than parts each part gets
// all of them. Pure.
std::vector<std::vector<int>> split_cores(const std::vector<int>& cores, int parts);

// The cores this process may run on (its affinity mask), ascending. Throws Error.
std::vector<int> allowed_cores();

// Binds the calling thread, and what it starts later. Returns errno, 0 on success. Safe between
// fork and exec.
int bind_to_cores(const std::vector<int>& cores);

}  // namespace zeroth::launcher
