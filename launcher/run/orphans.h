// What ranks started and left behind.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <vector>

namespace zeroth::launcher {

// From now on a descendant whose parent ends becomes a child of this process, not of init. Throws
// Error.
void adopt_orphans();

// Reaps dead children that are not in `ranks`. Never blocks.
void reap_orphans(const std::vector<pid_t>& ranks);

// SIGKILL to every child of this process and to the children that it gets by that, until none is
// left or `limit` has passed. Returns whether none is.
bool kill_orphans(std::chrono::milliseconds limit);

}  // namespace zeroth::launcher
