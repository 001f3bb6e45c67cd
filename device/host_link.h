// The host's side of a device: memory to copy from and to, and what copies.
#pragma once

#include <torch/types.h>

#include <memory>

#include "device/copy_stream.h"
#include "device/host_memory.h"

namespace zeroth::device {

struct HostLink {
  HostMemory memory;
  std::unique_ptr<CopyStream> copies;  // destroyed first: it waits for its copies
};

// On a GPU: memory that is page-locked when `pin_memory`, and copies on streams of their own. On
// the CPU: plain memory, and copies that have ended when they are begun.
std::shared_ptr<HostLink> make_host_link(torch::Device device, bool pin_memory);

}  // namespace zeroth::device
