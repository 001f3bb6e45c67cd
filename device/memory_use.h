// Current memory use of this process.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>

namespace zeroth::device {

// MemoryUse is in bytes. The device's values are 0 on the CPU.
struct MemoryUse {
  int64_t host = 0;       // resident set, including mapped files and shared memory
  int64_t host_peak = 0;  // since the process started
  int64_t device_allocated = 0;
  int64_t device_reserved = 0;  // allocated, plus what LibTorch caches for later tensors
  int64_t device_peak = 0;      // peak of device_allocated
};

MemoryUse memory_use(c10::Device device);

// Returns the bytes of a GPU that are free now.
int64_t free_device_bytes(c10::Device device);

}  // namespace zeroth::device
