#include "offload/file_lane.h"

#include <unistd.h>

#include <cerrno>
#include <utility>

#include "base/error.h"

namespace zeroth::offload {
namespace {

// pread and pwrite in the thread that starts the piece.
class PlainLane : public FileLane {
 public:
  explicit PlainLane(int descriptor) : descriptor_(descriptor) {}

  size_t depth() const override { return 1; }

  void start(size_t number, const FilePiece& piece) override {
    const auto offset = static_cast<off_t>(piece.offset);
    const ssize_t bytes = piece.op == FileOp::kRead
                              ? ::pread(descriptor_, piece.data, piece.length, offset)
                              : ::pwrite(descriptor_, piece.data, piece.length, offset);
    ended_.push_back({number, bytes < 0 ? -errno : bytes});
  }

  void wait(std::vector<PieceResult>& ended) override {
    ended.insert(ended.end(), ended_.begin(), ended_.end());
    ended_.clear();
  }

  void wake() override {}  // wait() never blocks

 private:
  int descriptor_;
  std::vector<PieceResult> ended_;
};

}  // namespace

FileLanes make_file_lanes(const LaneOptions& options) {
  ZEROTH_CHECK(options.queue_depth > 0 && options.threads > 0, "queue depth {}, {} threads",
               options.queue_depth, options.threads);
  FileLanes made;
  std::string reason = "as asked";
  if (options.engine != LaneOptions::Engine::kThreads) {
    UringLane uring = make_uring_lane(options);
    if (uring.lane) {
      made.engine = fmt::format("io_uring, queue {}{}", options.queue_depth,
                                uring.registered ? ", registered buffers" : "");
      made.notes = std::move(uring.notes);
      made.lanes.push_back(std::move(uring.lane));
      return made;
    }
    reason = uring.refused;
    if (options.engine == LaneOptions::Engine::kUring) throw Error("no io_uring: {}", reason);
    made.notes.push_back(fmt::format(
        "files are read and written by {} threads instead of io_uring, which costs some speed ({})",
        options.threads, reason));
  }
  made.engine = fmt::format("{} threads ({})", options.threads, reason);
  for (size_t i = 0; i < options.threads; ++i) {
    made.lanes.push_back(std::make_unique<PlainLane>(options.descriptor));
  }
  return made;
}

}  // namespace zeroth::offload
