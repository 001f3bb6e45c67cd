// What carries pieces of reads and writes to one file and back: io_uring holds many at once, a
// plain lane one. FileIo gives each lane a thread; tests put faulty lanes between the two.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace zeroth::offload {

// Offsets, lengths and addresses of all transfers are multiples of this, as O_DIRECT asks.
inline constexpr size_t kFileAlignment = 4096;
// What so many bytes take on a file.
template <std::integral Bytes>
constexpr Bytes file_aligned(Bytes bytes) {
  constexpr auto kGrid = static_cast<Bytes>(kFileAlignment);
  return (bytes + kGrid - 1) / kGrid * kGrid;
}

enum class FileOp { kRead, kWrite };

struct IoOperation {
  FileOp op = FileOp::kRead;
  uint64_t offset = 0;
  std::byte* data = nullptr;  // only read from by kWrite
  size_t length = 0;
};

struct IoCompletion {
  size_t index = 0;
  int64_t bytes = 0;  // transferred, or -errno
};

// All but wake() is called by one thread. What goes wrong with a piece is its result; a broken
// invariant of the lane itself ends the process.
class IoWorker {
 public:
  virtual ~IoWorker() = default;
  // How many pieces may be under way.
  virtual size_t depth() const = 0;
  // `index` names the piece in its result and is free again then. The piece's memory is the lane's
  // until that moment.
  virtual void start(size_t index, const IoOperation& operation) = 0;
  // Blocks until at least one piece ended or wake() was called, which may be before; appends the
  // results. Ends at once when pieces have ended already.
  virtual void wait(std::vector<IoCompletion>& ended) = 0;
  // From any thread: the present or the next wait() returns.
  virtual void wake() = 0;
};

struct IoWorkerOptions {
  enum class IoEngine { kAuto, kUring, kThreads };

  int descriptor = -1;      // open for reading and writing as long as the lanes live
  size_t queue_depth = 32;  // pieces under way in io_uring, at least 1
  size_t threads = 8;       // where io_uring is refused: as many pieces under way, at least 1
  IoEngine engine = IoEngine::kAuto;
  // Memory that io_uring keeps pinned, which saves work per transfer. Others work too.
  std::vector<std::span<std::byte>> registered = {};
};

struct IoWorkers {
  std::vector<std::unique_ptr<IoWorker>> workers;
  std::string engine;              // as "io_uring, queue 32, registered buffers", with the reason
  std::vector<std::string> notes;  // warnings for the user: what is slower here than it could be
};

// io_uring where this build, the kernel and its rules allow it, else threads; kUring throws an
// Error with the reason instead.
IoWorkers make_io_workers(const IoWorkerOptions& options);

// A lane of io_uring, or none and why.
struct UringWorker {
  std::unique_ptr<IoWorker> worker;
  bool registered = false;
  std::string refusal;
  std::vector<std::string> notes;
};
UringWorker make_uring_worker(const IoWorkerOptions& options);

}  // namespace zeroth::offload
