// Tensors of the CPU over ranks whose group takes only those of a device.
#pragma once

#include <memory>

#include "comm/group.h"

namespace zeroth::comm {

// Copies to the device and back. Keeps a reference to `group`.
std::unique_ptr<Group> make_device_staged_group(Group& group, torch::Device device);

}  // namespace zeroth::comm
