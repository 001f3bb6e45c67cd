// Lets a group of CPU tensors serve device tensors.
#pragma once

#include <memory>

#include "comm/group.h"

namespace zeroth::comm {

// Tensors of a device go to pinned host memory when a collective is issued, which waits for the
// current stream, and their results come back on the stream that is current in wait(). CPU tensors
// pass as they are.
std::unique_ptr<Group> make_cpu_staged_group(std::unique_ptr<Group> cpu);

}  // namespace zeroth::comm
