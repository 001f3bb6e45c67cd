// Memory for file transfers that bypass the page cache.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace zeroth::checkpoint {

// A TransferBuffer has kBytes bytes, aligned for O_DIRECT, in huge pages if the system provides
// them: with small pages a transfer has many more segments, which halves the rate of some disks. It
// is empty if memory is exhausted.
class TransferBuffer {
 public:
  static constexpr size_t kBytes = size_t{4} << 20;
  static constexpr size_t kAlignment = 4096;  // of addresses, offsets and sizes

  TransferBuffer();
  ~TransferBuffer();
  TransferBuffer(const TransferBuffer&) = delete;
  TransferBuffer& operator=(const TransferBuffer&) = delete;

  std::span<std::byte> bytes() const { return bytes_; }

  // Returns whether a transfer can bypass the page cache.
  static bool is_aligned(std::span<const std::byte> bytes, int64_t offset);

 private:
  std::span<std::byte> bytes_;
};

}  // namespace zeroth::checkpoint
