// Asynchronous reads and writes of a swap file, and memory for them. Independent of LibTorch.
#pragma once

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

#include "offload/access.h"
#include "offload/io_worker.h"
#include "offload/swap_file.h"

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

// A BusyTimer measures how long at least one of several operations was in flight. It is not
// thread-safe.
class BusyTimer {
 public:
  void begin() {
    if (active_++ == 0) since_ = Clock::now();
  }
  void end() {
    if (--active_ == 0) accumulated_ += Clock::now() - since_;
  }
  // Returns the time up to now, including operations still in flight.
  double seconds() const {
    auto total = accumulated_;
    if (active_ > 0) total += Clock::now() - since_;
    return total.count();
  }

 private:
  using Clock = std::chrono::steady_clock;

  size_t active_ = 0;
  Clock::time_point since_;
  std::chrono::duration<double> accumulated_{0};
};

// FileIo splits requests into operations. The I/O workers keep as many in flight as they can; these
// start in the order of the requests and end in any order. A request that overlaps one not yet
// waited for sees old or new bytes. All methods may be called from any thread.
//
// An operation that transfers too little is continued, an interrupted one is repeated. Any other
// failure fails its request with an Error that has path, offset, length and the system's reason,
// and affects no other request. There is no timeout: if a device does not respond, the kernel ends
// the operation with EIO after its own limits.
class FileIo {
 public:
  using RequestId = uint64_t;

  // Starts the workers. The file, and the memory of requests, must outlive this object.
  // `max_operation_bytes` is a multiple of kFileAlignment and at most 1 GiB.
  FileIo(const SwapFile& file, IoWorkers workers, size_t max_operation_bytes = size_t{1} << 20);
  // Waits for operations in flight and drops those not yet started.
  ~FileIo();
  FileIo(const FileIo&) = delete;
  FileIo& operator=(const FileIo&) = delete;

  // Start a transfer of bytes [offset, offset + size) of the file and return at once. The transfer
  // owns the memory until wait() returns for its id. Offset, size (not 0) and address are multiples
  // of kFileAlignment; the range lies within the file.
  RequestId read(uint64_t offset, std::span<std::byte> into);
  RequestId write(uint64_t offset, std::span<const std::byte> from);

  // Blocks until the request has no operation in flight, then throws its Error if it failed. Call
  // it once for each id.
  void wait(RequestId request_id);
  // Returns whether wait() would return at once.
  bool ended(RequestId request_id);

  const std::string& engine() const { return engine_; }  // for users, as in IoWorkers
  // Returns the bytes, and the seconds with requests in flight, since the start. No caller's waits.
  Traffic traffic();

 private:
  struct QueuedOperation : IoOperation {
    RequestId request_id = 0;
    int retries = 0;
  };
  struct Request {
    FileOp op = FileOp::kRead;
    size_t operations_left = 0;
    std::string error;  // of the first failure; empty if none
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
  std::condition_variable work_;      // signaled on new operations or stop_
  std::condition_variable finished_;  // signaled when a request has no operations left
  // Fields below are guarded by mutex_.
  std::deque<QueuedOperation> queue_;
  std::map<RequestId, Request> requests_;  // until waited for
  RequestId next_request_id_ = 0;
  BusyTimer any_;  // requests with operations left
  BusyTimer reads_;
  BusyTimer writes_;
  int64_t bytes_read_ = 0;
  int64_t bytes_written_ = 0;
  bool stop_ = false;

  std::vector<std::jthread> threads_;  // one for each worker
};

}  // namespace zeroth::offload
