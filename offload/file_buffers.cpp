#include "offload/file_buffers.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/out_of_memory.h"
#include "base/units.h"
#include "offload/file_lane.h"

namespace zeroth::offload {

FileBuffers::FileBuffers(size_t num_buffers, size_t buffer_bytes)
    : buffer_bytes_(buffer_bytes), fewest_free_(num_buffers) {
  ZEROTH_CHECK(num_buffers > 0 && buffer_bytes > 0 && buffer_bytes % kFileAlignment == 0,
               "{} buffers of {} bytes", num_buffers, buffer_bytes);
  size_t size = 0;
  ZEROTH_CHECK(!__builtin_mul_overflow(num_buffers, buffer_bytes, &size), "{} buffers of {} bytes",
               num_buffers, buffer_bytes);
  void* const memory =
      ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    const auto bytes = static_cast<int64_t>(size);
    throw OutOfHostMemory(
        bytes, fmt::format("cannot have {} of host memory ({} file buffers of {} bytes): {}",
                           format_bytes(bytes), num_buffers, buffer_bytes, std::strerror(errno)));
  }
  // From small pages a transfer has many more segments, which halves the rate of some disks.
  ::madvise(memory, size, MADV_HUGEPAGE);
  memory_ = {static_cast<std::byte*>(memory), size};
  for (size_t i = num_buffers; i-- > 0;) free_.push_back(memory_.data() + i * buffer_bytes);
}

FileBuffers::~FileBuffers() {
  ::munmap(memory_.data(), memory_.size());
}

std::optional<FileBuffers::Buffer> FileBuffers::take() {
  const std::lock_guard lock(mutex_);
  if (free_.empty()) return std::nullopt;
  std::byte* const data = free_.back();
  free_.pop_back();
  fewest_free_ = std::min(fewest_free_, free_.size());
  return Buffer(*this, {data, buffer_bytes_});
}

size_t FileBuffers::taken_bytes() const {
  const std::lock_guard lock(mutex_);
  return memory_.size() - free_.size() * buffer_bytes_;
}

size_t FileBuffers::most_taken_bytes() const {
  const std::lock_guard lock(mutex_);
  return memory_.size() - fewest_free_ * buffer_bytes_;
}

FileBuffers::Buffer::Buffer(Buffer&& other) noexcept
    : owner_(std::exchange(other.owner_, nullptr)), bytes_(other.bytes_) {}

FileBuffers::Buffer::~Buffer() {
  if (owner_ == nullptr) return;
  const std::lock_guard lock(owner_->mutex_);
  owner_->free_.push_back(bytes_.data());
}

}  // namespace zeroth::offload
