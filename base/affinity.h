// The cores that a process may run on.
#pragma once

#include <vector>

namespace zeroth {

// Those of the calling thread, ascending. Throws Error.
std::vector<int> allowed_cores();

// Binds the calling thread, and what it starts later. Returns errno, 0 on success. Safe between
// fork and exec.
int set_affinity(const std::vector<int>& cores);

}  // namespace zeroth
