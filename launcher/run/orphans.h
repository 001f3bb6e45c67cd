// The orphan reaper: ends processes that ranks started and left behind.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <vector>

namespace zeroth::launcher {

// Makes descendants whose parent ends children of this process, instead of init, from now on.
// Throws Error.
void adopt_orphans();

// Reaps dead children that are not in `ranks`. Never blocks.
void reap_orphans(const std::vector<pid_t>& ranks);

// Sends SIGKILL to every child of this process, and to children that it adopts thereby, until none
// is left or `limit` has passed. Returns whether none is left.
bool kill_orphans(std::chrono::milliseconds limit);

}  // namespace zeroth::launcher
