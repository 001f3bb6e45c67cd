// Host memory for transfers to and from a file, counted to the byte.
#pragma once

#include <cstddef>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

namespace zeroth::offload {

// `num_buffers` of `buffer_bytes` each in one piece of zeroed memory, aligned to kFileAlignment.
// The system provides a page, a huge one where it can, when it is touched or registered.
// Thread-safe.
class FileBuffers {
 public:
  // One of them, given back on destruction. The FileBuffers must outlive it.
  class Buffer {
   public:
    Buffer(Buffer&& other) noexcept;
    Buffer& operator=(Buffer&&) = delete;
    ~Buffer();
    std::span<std::byte> bytes() const { return bytes_; }

   private:
    friend class FileBuffers;
    Buffer(FileBuffers& owner, std::span<std::byte> bytes) : owner_(&owner), bytes_(bytes) {}

    FileBuffers* owner_;  // none once moved from
    std::span<std::byte> bytes_;
  };

  // `buffer_bytes` is a multiple of kFileAlignment. Throws an Error with the bytes and the system's
  // reason.
  FileBuffers(size_t num_buffers, size_t buffer_bytes);
  ~FileBuffers();
  FileBuffers(const FileBuffers&) = delete;
  FileBuffers& operator=(const FileBuffers&) = delete;

  // A buffer with the bytes that its last user left, or none when all are taken. Never blocks:
  // whoever needs one waits for his own oldest transfer.
  std::optional<Buffer> take();

  // All buffers, for those who register or pin them.
  std::span<std::byte> memory() const { return memory_; }
  size_t allocated_bytes() const { return memory_.size(); }
  size_t taken_bytes() const;
  size_t most_taken_bytes() const;  // since the start

 private:
  const size_t buffer_bytes_;
  std::span<std::byte> memory_;
  mutable std::mutex mutex_;
  std::vector<std::byte*> free_;  // under the mutex
  size_t fewest_free_;            // under the mutex
};

}  // namespace zeroth::offload
