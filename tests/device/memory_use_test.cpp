#include "device/memory_use.h"

#include <doctest/doctest.h>

#include <vector>

namespace zeroth::device::memory_use_test {

TEST_CASE("the host's memory grows with what is written, and the peak stays") {
  constexpr size_t kBytes = 64 << 20;
  const MemoryUse before = memory_use(c10::kCPU);
  CHECK(before.host > 0);
  CHECK(before.host_peak >= before.host);
  {
    const std::vector<char> held(kBytes, 1);
    CHECK(memory_use(c10::kCPU).host >= before.host + static_cast<int64_t>(kBytes) * 9 / 10);
    CHECK(held.back() == 1);
  }
  CHECK(memory_use(c10::kCPU).host_peak >= before.host + static_cast<int64_t>(kBytes) * 9 / 10);
  CHECK(memory_use(c10::kCPU).device_reserved == 0);
}

}  // namespace zeroth::device::memory_use_test
