// CPU affinity: the cores on which a thread may run.
#pragma once

#include <vector>

namespace zeroth {

// Returns the cores on which the calling thread may run, in ascending order. Throws an Error on
// failure.
std::vector<int> allowed_cores();

// Binds the calling thread, and the threads and processes that it starts later, to `cores`. Returns
// errno, or 0 on success. Is safe to call between fork and exec.
int set_affinity(const std::vector<int>& cores);

}  // namespace zeroth
