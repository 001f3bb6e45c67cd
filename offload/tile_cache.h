// Tiles of a file in a few buffers of host memory: read ahead of their use, written behind it.
// Needs no LibTorch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "offload/access.h"
#include "offload/file_buffers.h"
#include "offload/file_io.h"

namespace zeroth::offload {

// Where a tile rests: `offset` is a multiple of kFileAlignment. On the file `bytes`, at least 1,
// are rounded up to one, too.
struct Extent {
  uint64_t offset = 0;
  size_t bytes = 0;
};

struct TileCacheOptions {
  bool pipeline_read = true;   // else a tile is read when it is borrowed
  bool pipeline_write = true;  // else the end of a lease waits until its tile is written
};

// A buffer is free, or holds a tile that is being read, borrowed, being written, or clean: equal to
// the file. Tiles in buffers are borrowed without a read, so also those whose write is under way.
// Reading ahead takes free and clean buffers in the order of expect(), of the clean ones first what
// is expected last. A borrow that finds none waits for the oldest write, or gives up the tile read
// ahead that is expected last.
//
// Tiles do not overlap: each is cut as when it was seen first, else an invariant is broken. All
// methods may be called from any thread; a call waits for another that blocks.
class TileCache {
 private:
  struct Tile;

 public:
  // A borrowed tile, to whose bytes the holder has the access that he asked for. Its end begins the
  // write of what was borrowed to be written. The cache must outlive it.
  class Lease {
   public:
    Lease(Lease&& other) noexcept
        : cache_(std::exchange(other.cache_, nullptr)),
          tile_(other.tile_),
          access_(other.access_),
          bytes_(other.bytes_) {}
    Lease& operator=(Lease&&) = delete;
    ~Lease() {
      if (cache_ != nullptr) cache_->take_back(*tile_, access_);
    }
    std::span<std::byte> bytes() const { return bytes_; }

   private:
    friend class TileCache;
    Lease(TileCache& cache, Tile& tile, Access access, std::span<std::byte> bytes)
        : cache_(&cache), tile_(&tile), access_(access), bytes_(bytes) {}

    TileCache* cache_;  // none once moved from
    Tile* tile_;
    Access access_;
    std::span<std::byte> bytes_;
  };

  // Uses all of `buffers`. Both outlive this object.
  TileCache(FileIo& io, const FileBuffers& buffers, const TileCacheOptions& options = {});
  // Waits for what is under way.
  ~TileCache();
  TileCache(const TileCache&) = delete;
  TileCache& operator=(const TileCache&) = delete;

  // The tiles that will be borrowed next, in this order, instead of those expected before. Never
  // blocks. A borrow of one of the first of them, as many as there are buffers, drops those before
  // it; any other borrow leaves the list as it is.
  void expect(const std::vector<Extent>& extents);

  // A tile that was never written is zeros. Several may read a tile at a time, or one write. Blocks
  // until a read has arrived; throws its Error, or the first of a write from the moment on at which
  // it is known. All buffers borrowed is a broken invariant.
  Lease borrow(const Extent& extent, Access access);
  // Whether a borrow would return, or throw, at once, whatever the access. Reads ahead, too.
  bool ready(const Extent& extent);
  // Waits until all that was written has arrived. Throws the first Error of a write.
  void settle();

  Traffic traffic() const;

 private:
  enum class Transfer { kNone, kRead, kWrite };
  struct Buffer {
    std::span<std::byte> bytes;
    Tile* tile = nullptr;  // none while it is free
    Transfer transfer = Transfer::kNone;
    FileIo::Ticket ticket = 0;  // of the transfer, until it is waited for
    size_t readers = 0;
    bool writer = false;
    bool unset = false;      // the tile is zeros, the bytes are not yet
    uint64_t last_used = 0;  // by uses_
  };
  struct Tile {
    Extent extent;
    bool written = false;  // a lease to write it has ended
    Buffer* buffer = nullptr;
    std::vector<size_t> turns = {};  // in expected_, the next one at the back
  };

  void take_back(Tile& tile, Access access) noexcept;
  Tile& tile_of(const Extent& extent);
  size_t next_turn(const Buffer& buffer);
  void advance(Tile& tile);
  void read_ahead();
  Buffer* replaceable(bool may_wait);
  Buffer& make_room();
  void hold(Buffer& buffer, Tile& tile, bool read);
  void vacate(Buffer& buffer);
  std::string fill(Buffer& buffer, Access access);
  std::string wait(Buffer& buffer);
  void wait_for_write(Buffer& buffer);
  void finish_writes();
  void throw_if_failed() const;

  FileIo& io_;
  const TileCacheOptions options_;
  mutable std::mutex mutex_;
  // Under the mutex.
  std::vector<Buffer> buffers_;
  std::map<uint64_t, Tile> tiles_;  // by offset; all that were ever named
  std::vector<Tile*> expected_;
  size_t next_ = 0;  // in expected_
  uint64_t uses_ = 0;
  double waited_s_ = 0;
  std::string error_;  // the first of a write; the store is useless then
};

}  // namespace zeroth::offload
