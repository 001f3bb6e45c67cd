// The CPU side of a device: host memory to copy from and to, and the stream of copies.
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

// Makes the link. On a GPU the memory is page-locked if `pin_memory`, and copies run on streams of
// their own. On the CPU the memory is pageable, and each copy ends before its call returns.
std::shared_ptr<HostLink> make_host_link(torch::Device device, bool pin_memory);

}  // namespace zeroth::device
