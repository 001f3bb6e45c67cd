#include "checkpoint/buffered_file.h"

#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <mutex>
#include <stop_token>
#include <thread>
#include <utility>

#include "base/files/crc32c.h"

namespace zeroth::checkpoint {
namespace {

constexpr int64_t kBlock = TransferBuffer::kBytes;
constexpr int64_t kSmall = int64_t{64} << 10;  // reads that are not worth a block

class ReadAhead final : public RandomAccessFile {
 public:
  explicit ReadAhead(std::unique_ptr<RandomAccessFile> file) : file_(std::move(file)) {}
  int64_t size() const override { return file_->size(); }
  size_t read(std::span<std::byte> bytes, int64_t offset) override;

 private:
  struct CachedBlock {
    TransferBuffer memory;
    int64_t begin = -1;  // offset in the file; -1: not read yet
    size_t size = 0;     // less than a block at the end of the file
    std::exception_ptr failure;
  };

  CachedBlock& block_slot(int64_t begin) {
    return blocks_[static_cast<size_t>(begin / kBlock) % blocks_.size()];
  }
  const CachedBlock& wait_for(int64_t begin, bool follows);
  void run(const std::stop_token& stop);
  void fill(CachedBlock& block, int64_t begin);

  const std::unique_ptr<RandomAccessFile> file_;
  int64_t next_ = -1;  // where the last read ended

  std::mutex mutex_;
  std::condition_variable_any changed_;
  // The thread owns the blocks before wanted_ and those not read yet.
  std::array<CachedBlock, 3> blocks_;
  int64_t wanted_ = 0;     // start of the reader's current block
  int64_t fetch_ = 0;      // start of the block to fetch next
  int64_t fetch_end_ = 0;  // fetch no further
  std::jthread thread_;    // started with the first block
};

size_t ReadAhead::read(std::span<std::byte> bytes, int64_t offset) {
  const bool follows = offset == next_;
  size_t done = 0;
  if ((!follows && std::ssize(bytes) < kSmall) || blocks_[0].memory.bytes().empty()) {
    done = file_->read(bytes, offset);
  } else if (offset < size()) {
    const CachedBlock& block = wait_for(offset / kBlock * kBlock, follows);
    const auto at = static_cast<size_t>(offset - block.begin);
    done = at < block.size ? std::min(bytes.size(), block.size - at) : 0;
    std::memcpy(bytes.data(), block.memory.bytes().data() + at, done);
  }
  next_ = offset + static_cast<int64_t>(done);
  return done;
}

const ReadAhead::CachedBlock& ReadAhead::wait_for(int64_t begin, bool follows) {
  std::unique_lock lock(mutex_);
  if (begin < wanted_ || begin > fetch_) {
    for (CachedBlock& block : blocks_) block.begin = -1;
    fetch_ = begin;
  }
  wanted_ = begin;
  fetch_end_ = begin + kBlock * (follows ? std::ssize(blocks_) : 1);
  if (!thread_.joinable())
    thread_ = std::jthread([this](const std::stop_token& stop) { run(stop); });
  changed_.notify_all();
  const CachedBlock& block = block_slot(begin);
  changed_.wait(lock, [&] { return block.begin == begin; });
  if (block.failure) std::rethrow_exception(block.failure);
  return block;
}

void ReadAhead::run(const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, stop, [&] { return fetch_ < fetch_end_ && fetch_ < file_->size(); });
    if (stop.stop_requested()) return;
    const int64_t begin = std::exchange(fetch_, fetch_ + kBlock);
    CachedBlock& block = block_slot(begin);
    block.begin = -1;
    lock.unlock();
    fill(block, begin);
    lock.lock();
    // Discard the block if the reader has moved elsewhere meanwhile.
    if (begin >= wanted_ && begin < fetch_) block.begin = begin;
    changed_.notify_all();
  }
}

void ReadAhead::fill(CachedBlock& block, int64_t begin) {
  block.size = 0;
  block.failure = nullptr;
  try {
    const auto wanted = static_cast<size_t>(std::min(kBlock, file_->size() - begin));
    while (block.size < wanted) {
      const size_t done = file_->read(block.memory.bytes().subspan(block.size),
                                      begin + static_cast<int64_t>(block.size));
      if (done == 0) return;  // the file is shorter by now
      block.size += done;
    }
  } catch (...) {
    block.failure = std::current_exception();
  }
}

class WriteBehind final : public WritableFile {
 public:
  explicit WriteBehind(std::unique_ptr<WritableFile> file) : file_(std::move(file)) {}
  size_t write(std::span<const std::byte> bytes, int64_t offset) override;
  size_t write_with_crc(std::span<const std::byte> bytes, int64_t offset, uint32_t& crc) override;
  void sync() override;
  void close() override;

 private:
  // A FillBuffer holds consecutive bytes of one block of the file, at the same offset in its memory
  // as in the block, so that their alignment is the same.
  struct FillBuffer {
    TransferBuffer memory;
    int64_t begin = 0;
    size_t size = 0;
    size_t first() const { return static_cast<size_t>(begin) % TransferBuffer::kBytes; }
    std::span<std::byte> bytes() const { return memory.bytes().subspan(first(), size); }
  };

  FillBuffer& filled() { return parts_[filled_]; }
  std::span<std::byte> room_for(size_t max_size, int64_t offset);
  void advance(size_t size);
  void submit();
  void drain();
  void write_out(FillBuffer& part);
  void run(const std::stop_token& stop);

  const std::unique_ptr<WritableFile> file_;
  std::mutex writers_;
  // One part is filled; the thread owns the other one while it is in handed_.
  std::array<FillBuffer, 2> parts_;
  size_t filled_ = 0;

  std::mutex mutex_;
  std::condition_variable_any changed_;
  FillBuffer* handed_ = nullptr;  // null: the thread has nothing to write
  std::exception_ptr failure_;
  std::jthread thread_;  // started with the first full block
};

// Returns the buffer space for bytes at `offset` of the file: up to `max_size`, at least one byte.
// The caller holds writers_.
std::span<std::byte> WriteBehind::room_for(size_t max_size, int64_t offset) {
  if (filled().size > 0 && offset != filled().begin + static_cast<int64_t>(filled().size)) {
    submit();
  }
  FillBuffer& part = filled();
  if (part.size == 0) part.begin = offset;
  const size_t at = part.first() + part.size;
  return part.memory.bytes().subspan(at, std::min(max_size, TransferBuffer::kBytes - at));
}

// Marks `size` bytes of the space from room_for() as filled.
void WriteBehind::advance(size_t size) {
  FillBuffer& part = filled();
  part.size += size;
  if (part.first() + part.size == TransferBuffer::kBytes) submit();
}

size_t WriteBehind::write(std::span<const std::byte> bytes, int64_t offset) {
  const std::lock_guard one_writer(writers_);
  if (filled().memory.bytes().empty()) return file_->write(bytes, offset);
  const std::span<std::byte> room = room_for(bytes.size(), offset);
  std::memcpy(room.data(), bytes.data(), room.size());
  advance(room.size());
  return room.size();
}

size_t WriteBehind::write_with_crc(std::span<const std::byte> bytes, int64_t offset,
                                   uint32_t& crc) {
  const std::lock_guard one_writer(writers_);
  if (filled().memory.bytes().empty()) return file_->write_with_crc(bytes, offset, crc);
  const std::span<std::byte> room = room_for(bytes.size(), offset);
  crc = copy_with_crc32c(room, bytes.first(room.size()), crc);
  advance(room.size());
  return room.size();
}

// Hands the filled part to the thread. Blocks until the other part is written.
void WriteBehind::submit() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return handed_ == nullptr; });
  if (failure_) std::rethrow_exception(failure_);
  handed_ = &filled();
  filled_ = 1 - filled_;
  filled().size = 0;
  if (!thread_.joinable())
    thread_ = std::jthread([this](const std::stop_token& stop) { run(stop); });
  changed_.notify_all();
}

void WriteBehind::run(const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, stop, [&] { return handed_ != nullptr; });
    if (stop.stop_requested()) return;
    FillBuffer& part = *handed_;
    lock.unlock();
    write_out(part);
    lock.lock();
    handed_ = nullptr;
    changed_.notify_all();
  }
}

void WriteBehind::write_out(FillBuffer& part) {
  std::exception_ptr failure;
  try {
    write_all(*file_, part.bytes(), part.begin);
  } catch (...) {
    failure = std::current_exception();
  }
  part.size = 0;
  const std::lock_guard lock(mutex_);
  if (!failure_) failure_ = failure;
}

void WriteBehind::drain() {
  {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return handed_ == nullptr; });
  }
  if (!failure_ && filled().size > 0) write_out(filled());
  if (failure_) std::rethrow_exception(failure_);
}

void WriteBehind::sync() {
  drain();
  file_->sync();
}

void WriteBehind::close() {
  drain();
  file_->close();
}

}  // namespace

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

std::unique_ptr<RandomAccessFile> read_ahead(std::unique_ptr<RandomAccessFile> file) {
  if (file->size() <= kBlock) return file;
  return std::make_unique<ReadAhead>(std::move(file));
}

std::unique_ptr<WritableFile> write_behind(std::unique_ptr<WritableFile> file, int64_t size) {
  if (size <= kBlock) return file;
  return std::make_unique<WriteBehind>(std::move(file));
}

}  // namespace zeroth::checkpoint
