#include "checkpoint/buffered_file.h"

#include <doctest/doctest.h>

#include <algorithm>

namespace zeroth::checkpoint::buffered_file_test {

TEST_CASE("a buffer for transfers may be given to O_DIRECT; parts of it only where they begin so") {
  const TransferBuffer buffer;
  const std::span<std::byte> bytes = buffer.bytes();
  REQUIRE(bytes.size() == TransferBuffer::kBytes);
  std::fill(bytes.begin(), bytes.end(), std::byte{1});
  CHECK(TransferBuffer::is_aligned(bytes, 0));
  CHECK(TransferBuffer::is_aligned(bytes.subspan(4096, 8192), 12288));
  CHECK_FALSE(TransferBuffer::is_aligned(bytes, 512));
  CHECK_FALSE(TransferBuffer::is_aligned(bytes.subspan(512), 0));
  CHECK_FALSE(TransferBuffer::is_aligned(bytes.first(512), 0));
  CHECK_FALSE(TransferBuffer::is_aligned(bytes.first(0), 0));
}

}  // namespace zeroth::checkpoint::buffered_file_test
