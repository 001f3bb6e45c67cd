// Host memory for transfers to and from a file.
#pragma once

#include <cstddef>
#include <span>

namespace zeroth::offload {

// FileBuffers are buffers of one size in one block of zeroed memory, aligned to kFileAlignment. The
// system provides each page, a huge one if it can, when it is touched or registered.
class FileBuffers {
 public:
  // Allocates the buffers. `buffer_bytes` is a multiple of kFileAlignment. Throws an Error with the
  // bytes and the system's reason.
  FileBuffers(size_t num_buffers, size_t buffer_bytes);
  ~FileBuffers();
  FileBuffers(const FileBuffers&) = delete;
  FileBuffers& operator=(const FileBuffers&) = delete;

  size_t count() const { return memory_.size() / buffer_bytes_; }
  std::span<std::byte> operator[](size_t i) const {
    return memory_.subspan(i * buffer_bytes_, buffer_bytes_);
  }
  // Returns all buffers, for callers that register or pin them.
  std::span<std::byte> memory() const { return memory_; }

 private:
  const size_t buffer_bytes_;
  std::span<std::byte> memory_;
};

}  // namespace zeroth::offload
