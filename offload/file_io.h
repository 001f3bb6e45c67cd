// Reads and writes of a swap file that go on while the caller computes. Needs no LibTorch.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "offload/busy_timer.h"
#include "offload/io_worker.h"
#include "offload/swap_file.h"

namespace zeroth::offload {

// Requests are cut into pieces, of which the lanes keep as many under way as they can, begun in the
// order of the requests and ended in any: a request that overlaps one not yet waited for finds old
// or new bytes. All methods may be called from any thread.
//
// Failure: a piece that came short is continued, one that was interrupted repeated; anything else
// fails its request with an Error that holds path, offset, length and the system's reason. Other
// requests are not touched by it. There is no time limit: the kernel ends what a device does not
// answer, by its own limits, with EIO.
class FileIo {
 public:
  using RequestId = uint64_t;

  // The file, and the memory of requests, must outlive this object. Pieces are a multiple of
  // kFileAlignment and at most 1 GiB.
  FileIo(const SwapFile& file, IoWorkers workers, size_t max_operation_bytes = size_t{1} << 20);
  // Waits for what is under way; what was not begun is dropped.
  ~FileIo();
  FileIo(const FileIo&) = delete;
  FileIo& operator=(const FileIo&) = delete;

  // Begin a transfer of bytes [offset, offset + size) of the file and return at once. The memory
  // belongs to the transfer until its ticket was waited for. Offset, size (not 0) and address are
  // multiples of kFileAlignment; the range lies within the file.
  RequestId read(uint64_t offset, std::span<std::byte> into);
  RequestId write(uint64_t offset, std::span<const std::byte> from);

  // Blocks until nothing of the request is under way; then throws its Error if it failed. Each
  // ticket is waited for once.
  void wait(RequestId request_id);
  // Whether wait() would return at once.
  bool ended(RequestId request_id);

  const std::string& engine() const { return engine_; }  // for the user, as in IoWorkers
  uint64_t bytes_read() const { return bytes_read_; }    // since the start
  uint64_t bytes_written() const { return bytes_written_; }
  struct BusySeconds {  // during which at least one request was begun and not ended
    double any = 0;
    double reads = 0;
    double writes = 0;
  };
  BusySeconds busy();

 private:
  struct QueuedOperation : IoOperation {
    RequestId request_id = 0;
    int retries = 0;
  };
  struct Request {
    FileOp op = FileOp::kRead;
    size_t operations_left = 0;
    std::string error;  // the first; empty if none
  };

  RequestId begin(const IoOperation& whole);
  void run(IoWorker& worker);
  bool next_operation(QueuedOperation& operation);
  void finish(QueuedOperation operation, int64_t bytes);
  void fail(const QueuedOperation& operation, const std::string& reason);
  void end(RequestId request_id);
  BusyTimer& busy(FileOp op) { return op == FileOp::kRead ? reads_ : writes_; }

  const std::string path_;
  const uint64_t size_bytes_;
  const size_t max_operation_bytes_;
  const std::string engine_;
  const std::vector<std::unique_ptr<IoWorker>> workers_;

  std::mutex mutex_;
  std::condition_variable work_;      // something to do, or stop_
  std::condition_variable finished_;  // a request has no pieces left
  // Under the mutex.
  std::deque<QueuedOperation> queue_;
  std::map<RequestId, Request> requests_;  // until waited for
  RequestId next_request_id_ = 0;
  BusyTimer any_;  // requests with pieces left
  BusyTimer reads_;
  BusyTimer writes_;
  bool stop_ = false;

  std::atomic<uint64_t> bytes_read_ = 0;
  std::atomic<uint64_t> bytes_written_ = 0;
  std::vector<std::jthread> threads_;  // one for each lane
};

}  // namespace zeroth::offload
