// A group of CPU tensors made to accept device tensors.
#pragma once

#include <memory>

#include "comm/groups/group.h"

namespace zeroth::comm {

// Returns a group that copies device tensors to pinned host memory when a collective is issued,
// which waits for the current stream, and copies the results back on the stream that is current in
// wait(). CPU tensors pass unchanged.
std::unique_ptr<Group> make_cpu_staged_group(std::unique_ptr<Group> cpu);

}  // namespace zeroth::comm
