#include "checkpoint/read_ahead.h"

#include <algorithm>
#include <array>
#include <condition_variable>
#include <cstring>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>

#include "checkpoint/transfer_buffer.h"

namespace zeroth::checkpoint {
namespace {

constexpr int64_t kBlock = TransferBuffer::kBytes;
constexpr int64_t kSmall = int64_t{64} << 10;

class ReadAhead final : public RandomAccessFile {
 public:
  explicit ReadAhead(std::unique_ptr<RandomAccessFile> file);
  ~ReadAhead() override;
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
  void run();
  void fill(CachedBlock& block, int64_t begin);

  const std::unique_ptr<RandomAccessFile> file_;
  int64_t next_ = -1;  // where the last read ended

  std::mutex mutex_;
  std::condition_variable changed_;
  // The thread owns the blocks before wanted_ and those not read yet.
  std::array<CachedBlock, 3> blocks_;
  int64_t wanted_ = 0;     // start of the reader's current block
  int64_t fetch_ = 0;      // start of the block to fetch next
  int64_t fetch_end_ = 0;  // fetch no further
  bool stop_requested_ = false;
  std::thread thread_;  // started with the first block
};

ReadAhead::ReadAhead(std::unique_ptr<RandomAccessFile> file) : file_(std::move(file)) {}

ReadAhead::~ReadAhead() {
  {
    const std::lock_guard lock(mutex_);
    stop_requested_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

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
  if (!thread_.joinable()) thread_ = std::thread([this] { run(); });
  changed_.notify_all();
  const CachedBlock& block = block_slot(begin);
  changed_.wait(lock, [&] { return block.begin == begin; });
  if (block.failure) std::rethrow_exception(block.failure);
  return block;
}

void ReadAhead::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(
        lock, [&] { return stop_requested_ || (fetch_ < fetch_end_ && fetch_ < file_->size()); });
    if (stop_requested_) return;
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

}  // namespace

std::unique_ptr<RandomAccessFile> read_ahead(std::unique_ptr<RandomAccessFile> file) {
  if (file->size() <= kBlock) return file;
  return std::make_unique<ReadAhead>(std::move(file));
}

}  // namespace zeroth::checkpoint
