#include "offload/file_store.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "offload/file_buffers.h"
#include "offload/file_io.h"
#include "offload/file_lane.h"
#include "offload/tile_cache.h"

namespace zeroth::offload {
namespace {

FileLanes open_lanes(const SwapFile& file, const FileBuffers& buffers,
                     const configs::AioConfig& aio) {
  return make_file_lanes({.descriptor = file.descriptor(),
                          .queue_depth = static_cast<size_t>(aio.queue_depth),
                          .threads = static_cast<size_t>(aio.threads),
                          .registered = {buffers.memory()}});
}

std::vector<std::string> joined(std::vector<std::string> first,
                                const std::vector<std::string>& second) {
  first.insert(first.end(), second.begin(), second.end());
  return first;
}

// A file in use, its buffers, and what moves bytes between the two.
struct OpenFile {
  OpenFile(const FileStoreOptions& options, uint64_t file_bytes, uint64_t buffer_bytes)
      : file(options.place, file_bytes),
        buffers(options.buffers, buffer_bytes),
        locked(options.link ? options.link->memory.lock(buffers.memory()) : nullptr),
        lanes(open_lanes(file, buffers, options.aio)),
        notes(joined(file.notes(), lanes.notes)),
        io(file, std::move(lanes), static_cast<size_t>(options.aio.block_size)),
        cache(io, buffers, {options.pipeline_read, options.pipeline_write}) {}

  SwapFile file;
  FileBuffers buffers;
  std::shared_ptr<void> locked;  // the buffers' pages
  FileLanes lanes;
  std::vector<std::string> notes;
  FileIo io;
  TileCache cache;
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
    const uint64_t bytes = on_file(static_cast<uint64_t>(numel * width));
    file_bytes_ += bytes;
    largest_bytes_ = std::max(largest_bytes_, bytes);
    return shards_.size() - 1;
  }

  void expect(std::vector<Tile> tiles) override {
    std::vector<Extent> extents;
    for (const Tile& tile : tiles) {
      if (const Extent extent = extent_of(tile); extent.bytes > 0) extents.push_back(extent);
    }
    if (open_ != nullptr || !extents.empty()) cache().expect(extents);
  }

  TileLease borrow(const Tile& tile, torch::Device device, Access access) override {
    ZEROTH_CHECK(device.is_cpu(), "tiles of a file are lent to the CPU, asked for {}",
                 device.str());
    const Extent extent = extent_of(tile);
    const auto kind = torch::TensorOptions().dtype(shards_[tile.shard].dtype);
    if (extent.bytes == 0) return TileLease(at::empty({0}, kind));
    // std::function copies what it holds.
    auto lease = std::make_shared<TileCache::Lease>(cache().borrow(extent, access));
    return TileLease(at::from_blob(lease->bytes().data(), {tile.end - tile.begin}, kind),
                     [lease]() mutable { lease.reset(); });
  }

  bool ready(const Tile& tile) const override {
    const Extent extent = extent_of(tile);
    return extent.bytes == 0 || (open_ != nullptr && open_->cache.ready(extent));
  }

  void settle() override {
    if (open_ != nullptr) open_->cache.settle();
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
  struct Shard {
    int64_t numel;
    int64_t width;  // bytes of an element
    torch::Dtype dtype;
    uint64_t offset;  // in the file
  };

  uint64_t buffer_bytes() const {
    return std::min(on_file(static_cast<uint64_t>(options_.buffer_bytes)), largest_bytes_);
  }

  TileCache& cache() {
    if (open_ == nullptr) {
      open_ = std::make_unique<OpenFile>(options_, file_bytes_, buffer_bytes());
    }
    return open_->cache;
  }

  Extent extent_of(const Tile& tile) const {
    ZEROTH_CHECK(tile.shard < shards_.size(), "shard {} of {}", tile.shard, shards_.size());
    const Shard& shard = shards_[tile.shard];
    ZEROTH_CHECK(0 <= tile.begin && tile.begin <= tile.end && tile.end <= shard.numel,
                 "tile [{}, {}) of a shard of {}", tile.begin, tile.end, shard.numel);
    ZEROTH_CHECK(
        tile.begin % kTileGrid == 0 && (tile.end % kTileGrid == 0 || tile.end == shard.numel),
        "tile [{}, {}) of a shard of {} is not on the grid of {}", tile.begin, tile.end,
        shard.numel, kTileGrid);
    return {shard.offset + static_cast<uint64_t>(tile.begin * shard.width),
            static_cast<size_t>((tile.end - tile.begin) * shard.width)};
  }

  const FileStoreOptions options_;
  std::vector<Shard> shards_;
  uint64_t file_bytes_ = 0;
  uint64_t largest_bytes_ = 0;  // of a shard
  std::unique_ptr<OpenFile> open_;
};

}  // namespace

std::unique_ptr<ShardStore> make_file_store(FileStoreOptions options) {
  return std::make_unique<FileStore>(std::move(options));
}

}  // namespace zeroth::offload
