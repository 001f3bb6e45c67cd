#include "offload/file_store.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "offload/file_io.h"
#include "offload/io_worker.h"

namespace zeroth::offload {
namespace {

// An OpenFile is a file in use, its buffers, and the objects that transfer bytes between the two.
struct OpenFile {
  OpenFile(const FileStoreOptions& options, uint64_t file_bytes, uint64_t buffer_bytes)
      : file(options.place, file_bytes),
        buffers(options.buffers, buffer_bytes),
        locked(options.link ? options.link->memory.pin(buffers.memory()) : nullptr),
        workers(make_io_workers({.descriptor = file.descriptor(),
                                 .queue_depth = static_cast<size_t>(options.aio.queue_depth),
                                 .threads = static_cast<size_t>(options.aio.threads),
                                 .registered = {buffers.memory()}})),
        notes(workers.notes),
        io(file, std::move(workers), static_cast<size_t>(options.aio.block_size)),
        cache(io, buffers, options.cache) {
    notes.insert(notes.begin(), file.notes().begin(), file.notes().end());
  }

  SwapFile file;
  FileBuffers buffers;
  std::shared_ptr<void> locked;  // lock on the buffers' pages
  IoWorkers workers;
  std::vector<std::string> notes;
  FileIo io;
  ChunkCache cache;
};

class FileStore final : public ShardStore {
 public:
  explicit FileStore(FileStoreOptions options) : options_(std::move(options)) {
    ZEROTH_CHECK(options_.buffers > 0 && options_.buffer_bytes > 0, "{} buffers of {} bytes",
                 options_.buffers, options_.buffer_bytes);
  }

  size_t add(int64_t numel, torch::Dtype dtype) override {
    ZEROTH_CHECK(open_ == nullptr, "a shard is added to {} after its first use",
                 open_->file.path());
    const auto width = static_cast<int64_t>(c10::elementSize(dtype));
    shards_.push_back({numel, width, dtype, file_bytes_});
    const uint64_t bytes = file_aligned(static_cast<uint64_t>(numel * width));
    file_bytes_ += bytes;
    largest_bytes_ = std::max(largest_bytes_, bytes);
    return shards_.size() - 1;
  }

  void prefetch(std::vector<ShardChunk> chunks) override {
    std::vector<Extent> extents;
    for (const ShardChunk& chunk : chunks) {
      if (const Extent extent = extent_of(chunk); extent.bytes > 0) extents.push_back(extent);
    }
    if (open_ != nullptr || !extents.empty()) cache().prefetch(extents);
  }

  ChunkLease acquire(const ShardChunk& chunk, torch::Device device, Access access) override {
    ZEROTH_CHECK(device.is_cpu(), "chunks of a file are leased on the CPU, requested on {}",
                 device.str());
    const Extent extent = extent_of(chunk);
    const auto options = torch::TensorOptions().dtype(shards_[chunk.shard].dtype);
    if (extent.bytes == 0) return ChunkLease(at::empty({0}, options));
    const auto lease = std::make_shared<ChunkCache::Lease>(cache().acquire(extent, access));
    return ChunkLease(at::from_blob(lease->bytes().data(), {chunk.end - chunk.begin}, options),
                      lease);
  }

  bool ready(const ShardChunk& chunk) const override {
    const Extent extent = extent_of(chunk);
    return extent.bytes == 0 || (open_ != nullptr && open_->cache.ready(extent));
  }

  void flush() override {
    if (open_ != nullptr) open_->cache.flush();
  }

  StoreBytes bytes() const override {
    if (file_bytes_ == 0) return {};
    return {.host = static_cast<int64_t>(options_.buffers * buffer_bytes()),
            .file = static_cast<int64_t>(file_bytes_)};
  }

  Traffic traffic() const override { return open_ == nullptr ? Traffic{} : open_->cache.traffic(); }

  std::vector<std::string> notes() const override {
    return open_ == nullptr ? std::vector<std::string>{} : open_->notes;
  }

 private:
  struct FileShard {
    int64_t numel;
    int64_t width;  // bytes of an element
    torch::Dtype dtype;
    uint64_t offset;  // in the file
  };

  uint64_t buffer_bytes() const {
    return std::min(file_aligned(static_cast<uint64_t>(options_.buffer_bytes)), largest_bytes_);
  }

  ChunkCache& cache() {
    if (open_ == nullptr) {
      open_ = std::make_unique<OpenFile>(options_, file_bytes_, buffer_bytes());
    }
    return open_->cache;
  }

  Extent extent_of(const ShardChunk& chunk) const {
    ZEROTH_CHECK(chunk.shard < shards_.size(), "shard {} of {}", chunk.shard, shards_.size());
    const FileShard& shard = shards_[chunk.shard];
    ZEROTH_CHECK(0 <= chunk.begin && chunk.begin <= chunk.end && chunk.end <= shard.numel,
                 "chunk [{}, {}) of a shard of {}", chunk.begin, chunk.end, shard.numel);
    ZEROTH_CHECK(chunk.begin % kChunkAlignment == 0 &&
                     (chunk.end % kChunkAlignment == 0 || chunk.end == shard.numel),
                 "chunk [{}, {}) of a shard of {} is not aligned to {}", chunk.begin, chunk.end,
                 shard.numel, kChunkAlignment);
    return {shard.offset + static_cast<uint64_t>(chunk.begin * shard.width),
            static_cast<size_t>((chunk.end - chunk.begin) * shard.width)};
  }

  const FileStoreOptions options_;
  std::vector<FileShard> shards_;
  uint64_t file_bytes_ = 0;
  uint64_t largest_bytes_ = 0;  // of the largest shard
  std::unique_ptr<OpenFile> open_;
};

}  // namespace

std::unique_ptr<ShardStore> make_file_store(FileStoreOptions options) {
  return std::make_unique<FileStore>(std::move(options));
}

}  // namespace zeroth::offload
