#include "device/memory_use.h"

#include <c10/core/CachingDeviceAllocator.h>

#include "base/machine/host_limits.h"

namespace zeroth::device {

MemoryUse memory_use(c10::Device device) {
  const ProcessMemory own = process_memory();
  MemoryUse use{.host = own.resident, .host_peak = own.peak};
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

}  // namespace zeroth::device
