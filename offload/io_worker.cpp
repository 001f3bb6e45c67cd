#include "offload/io_worker.h"

#include <unistd.h>

#include <cerrno>

#include "base/error.h"

namespace zeroth::offload {
namespace {

// A BlockingWorker calls pread and pwrite in the thread that starts the operation.
class BlockingWorker : public IoWorker {
 public:
  explicit BlockingWorker(int descriptor) : descriptor_(descriptor) {}

  size_t depth() const override { return 1; }

  void start(size_t index, const IoOperation& operation) override {
    const auto offset = static_cast<off_t>(operation.offset);
    const ssize_t bytes = operation.op == FileOp::kRead
                              ? ::pread(descriptor_, operation.data, operation.length, offset)
                              : ::pwrite(descriptor_, operation.data, operation.length, offset);
    ended_.push_back({index, bytes < 0 ? -errno : bytes});
  }

  void wait(std::vector<IoCompletion>& ended) override {
    ended.insert(ended.end(), ended_.begin(), ended_.end());
    ended_.clear();
  }

  void wake() override {}  // wait() never blocks

 private:
  int descriptor_;
  std::vector<IoCompletion> ended_;
};

}  // namespace

IoWorkers make_io_workers(const IoWorkerOptions& options) {
  ZEROTH_CHECK(options.queue_depth > 0 && options.threads > 0, "queue depth {}, {} threads",
               options.queue_depth, options.threads);
  IoWorkers made;
  std::string reason = "as requested";
  if (options.engine != IoWorkerOptions::IoEngine::kThreads) {
    reason = make_uring_worker(options, made);
    if (reason.empty()) return made;
    if (options.engine == IoWorkerOptions::IoEngine::kUring)
      throw Error("io_uring is not available: {}", reason);
    made.notes.push_back(fmt::format(
        "files are read and written by {} threads instead of io_uring, which costs some speed ({})",
        options.threads, reason));
  }
  made.engine = fmt::format("{} threads ({})", options.threads, reason);
  for (size_t i = 0; i < options.threads; ++i) {
    made.workers.push_back(std::make_unique<BlockingWorker>(options.descriptor));
  }
  return made;
}

}  // namespace zeroth::offload
