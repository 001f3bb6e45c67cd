// The cores that a process may run on.
#pragma once

#include <sys/types.h>

#include <optional>
#include <vector>

namespace zeroth {

// Of `process`, 0 for the calling thread; ascending. Empty where the kernel does not tell.
std::optional<std::vector<int>> cores_of(pid_t process);

// The calling thread's. Throws Error.
std::vector<int> allowed_cores();

// Binds the calling thread, and what it starts later. Returns errno, 0 on success. Safe between
// fork and exec.
int bind_to_cores(const std::vector<int>& cores);

}  // namespace zeroth
