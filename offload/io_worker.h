// I/O workers, which carry out the reads and writes of one file: io_uring keeps many in flight, a
// plain worker one. FileIo gives each worker a thread; tests put faulty workers between the two.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace zeroth::offload {

// Alignment of offsets, lengths and addresses of all transfers, as O_DIRECT requires.
inline constexpr size_t kFileAlignment = 4096;
// Returns the space that `bytes` occupy in a file.
template <std::integral Bytes>
constexpr Bytes file_aligned(Bytes bytes) {
  constexpr auto kGrid = static_cast<Bytes>(kFileAlignment);
  return (bytes + kGrid - 1) / kGrid * kGrid;
}

enum class FileOp { kRead, kWrite };

struct IoOperation {
  FileOp op = FileOp::kRead;
  uint64_t offset = 0;
  std::byte* data = nullptr;  // kWrite only reads from it
  size_t length = 0;
};

struct IoCompletion {
  size_t index = 0;
  int64_t bytes = 0;  // bytes transferred, or -errno
};

// An IoWorker is used by one thread, except for wake(). A failed operation is reported in its
// completion; a broken invariant of the worker itself ends the process.
class IoWorker {
 public:
  virtual ~IoWorker() = default;
  // Returns the maximum number of operations in flight.
  virtual size_t depth() const = 0;
  // Starts an operation. `index` identifies its completion and can be reused after that. The worker
  // owns the operation's memory until then.
  virtual void start(size_t index, const IoOperation& operation) = 0;
  // Blocks until at least one operation has ended or wake() is called, which may happen before;
  // appends the completions. Returns at once if operations have ended already.
  virtual void wait(std::vector<IoCompletion>& ended) = 0;
  // Makes the current or the next wait() return. Any thread may call it.
  virtual void wake() = 0;
};

struct IoWorkerOptions {
  enum class IoEngine { kAuto, kUring, kThreads };

  int descriptor = -1;      // open for reading and writing as long as the workers live
  size_t queue_depth = 32;  // maximum operations in flight in io_uring, at least 1
  size_t threads = 8;       // maximum in flight if io_uring is refused, at least 1
  IoEngine engine = IoEngine::kAuto;
  // Memory that io_uring keeps pinned, which saves work per transfer. Other memory works too.
  std::vector<std::span<std::byte>> registered = {};
};

struct IoWorkers {
  std::vector<std::unique_ptr<IoWorker>> workers;
  std::string engine;              // as "io_uring, queue 32, registered buffers", with the reason
  std::vector<std::string> notes;  // warnings for users: what is slower here than necessary
};

// Makes io_uring workers if this build, the kernel and its policies allow it, otherwise threads.
// kUring throws an Error with the reason instead of using threads.
IoWorkers make_io_workers(const IoWorkerOptions& options);

// Makes an io_uring worker the only one of `workers`. Returns an empty text, or why this build or
// the kernel refuses io_uring; `workers` is unchanged then.
std::string make_uring_worker(const IoWorkerOptions& options, IoWorkers& workers);

}  // namespace zeroth::offload
