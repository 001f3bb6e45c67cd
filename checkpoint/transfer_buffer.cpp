#include "checkpoint/transfer_buffer.h"

#include <sys/mman.h>

#include <cstdlib>

namespace zeroth::checkpoint {

TransferBuffer::TransferBuffer() {
  constexpr size_t kHugePage = size_t{2} << 20;
  void* const memory = std::aligned_alloc(kHugePage, kBytes);
  if (memory == nullptr) return;
  ::madvise(memory, kBytes, MADV_HUGEPAGE);
  bytes_ = {static_cast<std::byte*>(memory), kBytes};
}

TransferBuffer::~TransferBuffer() {
  std::free(bytes_.data());
}

bool TransferBuffer::is_aligned(std::span<const std::byte> bytes, int64_t offset) {
  const auto address = reinterpret_cast<uintptr_t>(bytes.data());
  return !bytes.empty() &&
         (address | bytes.size() | static_cast<uintptr_t>(offset)) % kAlignment == 0;
}

}  // namespace zeroth::checkpoint
