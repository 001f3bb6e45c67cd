// What this process holds in memory right now.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>

namespace zeroth::device {

// Bytes. The device's are 0 on the CPU.
struct MemoryUse {
  int64_t host = 0;       // resident set: mapped files and shared memory included
  int64_t host_peak = 0;  // since the process started
  int64_t device_allocated = 0;
  int64_t device_reserved = 0;  // allocated, and kept by LibTorch for the next tensors
  int64_t device_peak = 0;      // of the allocated ones
};

MemoryUse memory_use(c10::Device device);

// Bytes of a GPU that nobody holds now.
int64_t free_device_bytes(c10::Device device);

}  // namespace zeroth::device
