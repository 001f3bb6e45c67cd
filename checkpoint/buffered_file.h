// Files whose large transfers bypass the page cache, while their reader or writer processes other
// bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "checkpoint/file_system.h"

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

// Wraps `file` for one thread that reads it from start to end, with or without gaps. Another thread
// reads it block by block (TransferBuffer::kBytes): the requested block and, if reads are
// sequential, the next ones. A small read elsewhere goes directly to `file`. A read of a block
// throws what `file` threw for it. Returns a file of one block unchanged.
std::unique_ptr<RandomAccessFile> read_ahead(std::unique_ptr<RandomAccessFile> file);

// Wraps `file`, which will have `size` bytes, for a writer that writes mostly sequentially. Copies
// the bytes and collects them up to the end of a block (TransferBuffer::kBytes), which another
// thread then writes. A later call throws what `file` threw, at the latest sync() or close(), which
// then do nothing else. If the file is destroyed before that, pending bytes may or may not be
// written. Returns a file of one block unchanged.
std::unique_ptr<WritableFile> write_behind(std::unique_ptr<WritableFile> file, int64_t size);

}  // namespace zeroth::checkpoint
