// Asynchronous reads and writes of a swap file. Independent of LibTorch.
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
  uint64_t bytes_read() const { return bytes_read_; }    // since the start
  uint64_t bytes_written() const { return bytes_written_; }
  struct BusySeconds {  // during which at least one request was in flight
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
  bool stop_ = false;

  std::atomic<uint64_t> bytes_read_ = 0;
  std::atomic<uint64_t> bytes_written_ = 0;
  std::vector<std::jthread> threads_;  // one for each worker
};

}  // namespace zeroth::offload
