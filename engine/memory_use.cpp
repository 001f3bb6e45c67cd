#include "engine/memory_use.h"

#include <c10/core/CachingDeviceAllocator.h>

#include <fstream>
#include <string>

namespace zeroth::engine {

MemoryUse memory_use(c10::Device device) {
  MemoryUse use;
  std::ifstream status("/proc/self/status");
  for (std::string key; status >> key;) {
    int64_t kib = 0;
    if (key == "VmHWM:" && status >> kib) use.host_peak = kib * 1024;
    if (key == "VmRSS:" && status >> kib) use.host = kib * 1024;
    std::getline(status, key);
  }
  if (device.is_cpu()) return use;
  constexpr auto kAll = static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE);
  const auto stats = c10::getDeviceAllocator(device.type())->getDeviceStats(device.index());
  use.device_allocated = stats.allocated_bytes[kAll].current;
  use.device_peak = stats.allocated_bytes[kAll].peak;
  use.device_reserved = stats.reserved_bytes[kAll].current;
  return use;
}

int64_t free_device_bytes(c10::Device device) {
  const auto info = c10::getDeviceAllocator(device.type())->getMemoryInfo(device.index());
  return static_cast<int64_t>(info.first);
}

}  // namespace zeroth::engine
