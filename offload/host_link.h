// The host's side of a device: memory to copy from and to, and what copies.
#pragma once

#include <memory>

#include "offload/copy_stream.h"
#include "offload/host_memory.h"

namespace zeroth::offload {

struct HostLink {
  HostMemory memory;
  std::unique_ptr<CopyStream> copies;  // destroyed first: it waits for its copies
};

}  // namespace zeroth::offload
