#include "offload/file_io.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <numeric>
#include <utility>

#include "base/error.h"
#include "base/machine/host_limits.h"
#include "base/machine/process_limits.h"
#include "base/text/units.h"

namespace zeroth::offload {
namespace {

// The kernel transfers less than 2 GiB at once.
constexpr size_t kMaxOperationBytes = size_t{1} << 30;

// Maximum retries of an operation that is interrupted or that the kernel has too little memory for.
constexpr int kMaxRetries = 1000;

const char* to_string(FileOp op) {
  return op == FileOp::kRead ? "read" : "write";
}

}  // namespace

FileBuffers::FileBuffers(size_t num_buffers, size_t buffer_bytes) : buffer_bytes_(buffer_bytes) {
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
        bytes, fmt::format("cannot allocate {} of host memory ({} file buffers of {} bytes): {}",
                           format_bytes(bytes), num_buffers, buffer_bytes, system_reason(errno)));
  }
  // With small pages a transfer has many more segments, which halves the rate of some disks.
  ::madvise(memory, size, MADV_HUGEPAGE);
  memory_ = {static_cast<std::byte*>(memory), size};
}

FileBuffers::~FileBuffers() {
  ::munmap(memory_.data(), memory_.size());
}

FileIo::FileIo(const SwapFile& file, IoWorkers workers, size_t max_operation_bytes)
    : path_(file.path()),
      size_bytes_(file.size_bytes()),
      max_operation_bytes_(max_operation_bytes),
      engine_(std::move(workers.engine)),
      workers_(std::move(workers.workers)) {
  ZEROTH_CHECK(max_operation_bytes > 0 && max_operation_bytes % kFileAlignment == 0 &&
                   max_operation_bytes <= kMaxOperationBytes,
               "operations of {} bytes", max_operation_bytes);
  for (const auto& worker : workers_) {
    threads_.emplace_back([this, &worker] { run(*worker); });
  }
}

FileIo::~FileIo() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
    queue_.clear();
  }
  work_.notify_all();
  for (const auto& worker : workers_) worker->wake();
  threads_.clear();
}

FileIo::RequestId FileIo::read(uint64_t offset, std::span<std::byte> into) {
  return begin({FileOp::kRead, offset, into.data(), into.size()});
}

FileIo::RequestId FileIo::write(uint64_t offset, std::span<const std::byte> from) {
  return begin({FileOp::kWrite, offset, const_cast<std::byte*>(from.data()), from.size()});
}

FileIo::RequestId FileIo::begin(const IoOperation& whole) {
  const auto address = reinterpret_cast<uintptr_t>(whole.data);
  ZEROTH_CHECK((whole.offset | whole.length | address) % kFileAlignment == 0,
               "unaligned {} of {} bytes at offset {}, address {:#x}", to_string(whole.op),
               whole.length, whole.offset, address);
  ZEROTH_CHECK(
      whole.length > 0 && whole.length <= size_bytes_ && whole.offset <= size_bytes_ - whole.length,
      "{} of {} bytes at offset {} of a file of {}", to_string(whole.op), whole.length,
      whole.offset, size_bytes_);
  RequestId request_id = 0;
  {
    const std::lock_guard lock(mutex_);
    request_id = next_request_id_++;
    any_.begin();
    busy(whole.op).begin();
    Request& request = requests_[request_id];
    request.op = whole.op;
    for (size_t done = 0; done < whole.length; done += max_operation_bytes_) {
      const size_t length = std::min(max_operation_bytes_, whole.length - done);
      queue_.push_back({{whole.op, whole.offset + done, whole.data + done, length}, request_id, 0});
      ++request.operations_left;
    }
  }
  work_.notify_all();
  for (const auto& worker : workers_) worker->wake();
  return request_id;
}

// Starts operations on the worker and handles completions until nothing is left after stop_.
void FileIo::run(IoWorker& worker) {
  std::vector<QueuedOperation> in_flight(worker.depth());
  std::vector<size_t> free(worker.depth());
  std::iota(free.begin(), free.end(), size_t{0});
  std::vector<IoCompletion> ended;
  for (;;) {
    if (free.size() == in_flight.size()) {
      std::unique_lock lock(mutex_);
      work_.wait(lock, [this] { return stop_ || !queue_.empty(); });
      if (queue_.empty()) return;
    }
    while (!free.empty() && next_operation(in_flight[free.back()])) {
      worker.start(free.back(), in_flight[free.back()]);
      free.pop_back();
    }
    if (free.size() == in_flight.size()) continue;  // another worker was faster
    ended.clear();
    worker.wait(ended);
    for (const auto& result : ended) {
      finish(in_flight[result.index], result.bytes);
      free.push_back(result.index);
    }
  }
}

// Fetches the next operation of a request that has not failed. Returns false if there is none.
bool FileIo::next_operation(QueuedOperation& operation) {
  const std::lock_guard lock(mutex_);
  while (!queue_.empty()) {
    operation = queue_.front();
    queue_.pop_front();
    if (requests_.at(operation.request_id).error.empty()) return true;
    end(operation.request_id);
  }
  return false;
}

void FileIo::finish(QueuedOperation operation, int64_t bytes) {
  const std::lock_guard lock(mutex_);
  if (bytes == -EINTR || bytes == -EAGAIN) {
    // The cause is not a limit of the process, as system_reason would explain EAGAIN.
    if (++operation.retries > kMaxRetries)
      return fail(operation, std::strerror(static_cast<int>(-bytes)));
    return stop_ ? end(operation.request_id) : queue_.push_front(operation);
  }
  if (bytes < 0) return fail(operation, system_reason(static_cast<int>(-bytes)));
  // Continue at an aligned offset, so the last part of a block is transferred twice.
  const size_t transferred = std::min(static_cast<size_t>(bytes), operation.length);
  const size_t kept = transferred / kFileAlignment * kFileAlignment;
  (operation.op == FileOp::kRead ? bytes_read_ : bytes_written_) += static_cast<int64_t>(kept);
  if (kept == operation.length) return end(operation.request_id);
  if (kept == 0) {
    return fail(operation,
                fmt::format("only {} bytes were transferred{}", transferred,
                            operation.op == FileOp::kRead ? ", the file ends there" : ""));
  }
  operation.offset += kept;
  operation.data += kept;
  operation.length -= kept;
  return stop_ ? end(operation.request_id) : queue_.push_front(operation);
}

void FileIo::fail(const QueuedOperation& operation, const std::string& reason) {
  std::string& error = requests_.at(operation.request_id).error;
  if (error.empty()) {
    error = fmt::format("cannot {} {} bytes at offset {} of {}: {}", to_string(operation.op),
                        operation.length, operation.offset, path_, reason);
  }
  end(operation.request_id);
}

void FileIo::end(RequestId request_id) {
  Request& request = requests_.at(request_id);
  if (--request.operations_left > 0) return;
  any_.end();
  busy(request.op).end();
  finished_.notify_all();
}

void FileIo::wait(RequestId request_id) {
  std::unique_lock lock(mutex_);
  ZEROTH_CHECK(requests_.contains(request_id), "request {} was already waited for", request_id);
  finished_.wait(lock, [&] { return requests_.at(request_id).operations_left == 0; });
  const std::string error = requests_.extract(request_id).mapped().error;
  if (!error.empty()) throw Error(error);
}

bool FileIo::ended(RequestId request_id) {
  const std::lock_guard lock(mutex_);
  ZEROTH_CHECK(requests_.contains(request_id), "request {} was already waited for", request_id);
  return requests_.at(request_id).operations_left == 0;
}

Traffic FileIo::traffic() {
  const std::lock_guard lock(mutex_);
  return {.bytes_read = bytes_read_,
          .bytes_written = bytes_written_,
          .reading_s = reads_.seconds(),
          .writing_s = writes_.seconds(),
          .in_flight_s = any_.seconds()};
}

}  // namespace zeroth::offload
