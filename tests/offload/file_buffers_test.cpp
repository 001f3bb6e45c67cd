#include "offload/file_buffers.h"

#include <doctest/doctest.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "base/error.h"
#include "offload/file_lane.h"

namespace zeroth::offload {

TEST_CASE("buffers are aligned, apart, zero, and counted to the byte") {
  FileBuffers pool(3, 5 * kFileAlignment);
  CHECK(pool.allocated_bytes() == 15 * kFileAlignment);
  CHECK(pool.taken_bytes() == 0);
  std::vector<FileBuffers::Buffer> taken;
  while (auto buffer = pool.take()) {
    CHECK(reinterpret_cast<uintptr_t>(buffer->bytes().data()) % kFileAlignment == 0);
    CHECK(buffer->bytes().size() == 5 * kFileAlignment);
    for (const std::byte byte : buffer->bytes()) {
      if (byte != std::byte{0}) FAIL("a buffer is not zero, so it overlaps another");
    }
    std::fill(buffer->bytes().begin(), buffer->bytes().end(), std::byte{1});
    taken.push_back(std::move(*buffer));
  }
  CHECK(taken.size() == 3);
  CHECK(pool.taken_bytes() == pool.allocated_bytes());
}

TEST_CASE("a buffer goes back when its holder ends, once") {
  FileBuffers pool(2, kFileAlignment);
  {
    auto first = pool.take();
    const FileBuffers::Buffer moved = std::move(*first);
    first.reset();
    CHECK(pool.taken_bytes() == kFileAlignment);
    const auto second = pool.take();
    CHECK(second->bytes().data() != moved.bytes().data());
    CHECK_FALSE(pool.take());
  }
  CHECK(pool.taken_bytes() == 0);
  CHECK(pool.most_taken_bytes() == 2 * kFileAlignment);
  CHECK(pool.take());
}

TEST_CASE("memory that the system does not have is an error with its size") {
  CHECK_THROWS_WITH_AS(FileBuffers(1 << 20, size_t{1} << 40),
                       doctest::Contains("file buffers of 1099511627776 bytes): Cannot allocate"),
                       Error);
  CHECK_THROWS_AS(FileBuffers(1, 100), InternalError);
  CHECK_THROWS_AS(FileBuffers(size_t{1} << 40, size_t{1} << 40), InternalError);
}

}  // namespace zeroth::offload
