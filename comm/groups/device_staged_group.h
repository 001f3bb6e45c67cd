// CPU tensors over a group that accepts only device tensors.
#pragma once

#include <memory>

#include "comm/groups/group.h"

namespace zeroth::comm {

// Returns a group that copies tensors to the device and back. Keeps a reference to `group`.
std::unique_ptr<Group> make_device_staged_group(Group& group, torch::Device device);

}  // namespace zeroth::comm
