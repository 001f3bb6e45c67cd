#include "offload/file_buffers.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>

#include "base/error.h"
#include "offload/io_worker.h"

namespace zeroth::offload {

TEST_CASE("buffers are aligned, apart and zero") {
  const FileBuffers buffers(3, 5 * kFileAlignment);
  CHECK(buffers.count() == 3);
  CHECK(buffers.memory().size() == 15 * kFileAlignment);
  for (size_t i = 0; i < buffers.count(); ++i) {
    const std::span<std::byte> buffer = buffers[i];
    CHECK(reinterpret_cast<uintptr_t>(buffer.data()) % kFileAlignment == 0);
    CHECK(buffer.size() == 5 * kFileAlignment);
    for (const std::byte byte : buffer) {
      if (byte != std::byte{0}) FAIL("a buffer is not zero, so it overlaps another");
    }
    std::fill(buffer.begin(), buffer.end(), std::byte{1});
  }
}

TEST_CASE("memory that the system does not have is an error with its size") {
  CHECK_THROWS_WITH_AS(FileBuffers(1 << 20, size_t{1} << 40),
                       doctest::Contains("file buffers of 1099511627776 bytes): Cannot allocate"),
                       Error);
  CHECK_THROWS_AS(FileBuffers(1, 100), InternalError);
  CHECK_THROWS_AS(FileBuffers(size_t{1} << 40, size_t{1} << 40), InternalError);
}

}  // namespace zeroth::offload
