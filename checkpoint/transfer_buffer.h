// Memory from which, and into which, files are transferred past the page cache.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace zeroth::checkpoint {

// Of so many bytes, aligned for O_DIRECT, in huge pages where the system gives any: from small ones
// a transfer has many more segments, which halves the rate of some disks. Empty where there is no
// memory.
class TransferBuffer {
 public:
  static constexpr size_t kBytes = size_t{4} << 20;
  static constexpr size_t kAlignment = 4096;  // of addresses, offsets and sizes

  TransferBuffer();
  ~TransferBuffer();
  TransferBuffer(const TransferBuffer&) = delete;
  TransferBuffer& operator=(const TransferBuffer&) = delete;

  std::span<std::byte> bytes() const { return bytes_; }

  // Whether a transfer may pass by the page cache.
  static bool is_aligned(std::span<const std::byte> bytes, int64_t offset);

 private:
  std::span<std::byte> bytes_;
};

}  // namespace zeroth::checkpoint
