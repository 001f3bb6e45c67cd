#include "checkpoint/write_behind.h"

#include <algorithm>
#include <array>
#include <condition_variable>
#include <cstring>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>

#include "base/files/crc32c.h"
#include "checkpoint/transfer_buffer.h"

namespace zeroth::checkpoint {
namespace {

constexpr size_t kBlock = TransferBuffer::kBytes;

class WriteBehind final : public WritableFile {
 public:
  explicit WriteBehind(std::unique_ptr<WritableFile> file) : file_(std::move(file)) {}
  ~WriteBehind() override;
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
    size_t first() const { return static_cast<size_t>(begin) % kBlock; }
    std::span<std::byte> bytes() const { return memory.bytes().subspan(first(), size); }
  };

  FillBuffer& filled() { return parts_[filled_]; }
  std::span<std::byte> room_for(size_t max_size, int64_t offset);
  void advance(size_t size);
  void submit();
  void drain();
  void write_out(FillBuffer& part);
  void run();

  const std::unique_ptr<WritableFile> file_;
  std::mutex writers_;
  // One part is filled; the thread owns the other one while it is in handed_.
  std::array<FillBuffer, 2> parts_;
  size_t filled_ = 0;

  std::mutex mutex_;
  std::condition_variable changed_;
  FillBuffer* handed_ = nullptr;  // null: the thread has nothing to write
  std::exception_ptr failure_;
  bool stop_requested_ = false;
  std::thread thread_;  // started with the first full block
};

WriteBehind::~WriteBehind() {
  {
    const std::lock_guard lock(mutex_);
    stop_requested_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

// Returns the buffer space for bytes at `offset` of the file: up to `max_size`, at least one byte.
// The caller holds writers_.
std::span<std::byte> WriteBehind::room_for(size_t max_size, int64_t offset) {
  if (filled().size > 0 && offset != filled().begin + static_cast<int64_t>(filled().size)) {
    submit();
  }
  FillBuffer& part = filled();
  if (part.size == 0) part.begin = offset;
  const size_t at = part.first() + part.size;
  return part.memory.bytes().subspan(at, std::min(max_size, kBlock - at));
}

// Marks `size` bytes of the space from room_for() as filled.
void WriteBehind::advance(size_t size) {
  FillBuffer& part = filled();
  part.size += size;
  if (part.first() + part.size == kBlock) submit();
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
  if (!thread_.joinable()) thread_ = std::thread([this] { run(); });
  changed_.notify_all();
}

void WriteBehind::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return stop_requested_ || handed_ != nullptr; });
    if (stop_requested_) return;
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

std::unique_ptr<WritableFile> write_behind(std::unique_ptr<WritableFile> file, int64_t size) {
  if (size <= static_cast<int64_t>(kBlock)) return file;
  return std::make_unique<WriteBehind>(std::move(file));
}

}  // namespace zeroth::checkpoint
