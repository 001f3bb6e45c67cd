// The host's side of the mesh's device.
#pragma once

#include <torch/types.h>

#include <memory>

#include "offload/host_link.h"

namespace zeroth::zero {

// On a GPU: memory that is page-locked when `pin_memory`, and copies on streams of their own. On
// the CPU: plain memory, and copies that have ended when they are begun.
std::shared_ptr<offload::HostLink> make_host_link(torch::Device device, bool pin_memory);

}  // namespace zeroth::zero
