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

struct ChunkCacheOptions {
  bool pipeline_read = true;   // else a tile is read when it is borrowed
  bool pipeline_write = true;  // else the end of a lease waits until its tile is written
};

// A buffer is free, or holds a tile that is being read, borrowed, being written, or clean: equal to
// the file. Tiles in buffers are borrowed without a read, so also those whose write is under way.
// Reading ahead takes free and clean buffers in the order of prefetch(), of the clean ones first
// what is expected last. A borrow that finds none waits for the oldest write, or gives up the tile
// read ahead that is expected last.
//
// Tiles do not overlap: each is cut as when it was seen first, else an invariant is broken. All
// methods may be called from any thread; a call waits for another that blocks.
class ChunkCache {
 private:
  struct CachedChunk;

 public:
  // A borrowed tile, to whose bytes the holder has the access that he asked for. Its end begins the
  // write of what was borrowed to be written. The cache must outlive it.
  class Lease {
   public:
    Lease(Lease&& other) noexcept
        : cache_(std::exchange(other.cache_, nullptr)),
          chunk_(other.chunk_),
          access_(other.access_),
          bytes_(other.bytes_) {}
    Lease& operator=(Lease&&) = delete;
    ~Lease() {
      if (cache_ != nullptr) cache_->release(*chunk_, access_);
    }
    std::span<std::byte> bytes() const { return bytes_; }

   private:
    friend class ChunkCache;
    Lease(ChunkCache& cache, CachedChunk& chunk, Access access, std::span<std::byte> bytes)
        : cache_(&cache), chunk_(&chunk), access_(access), bytes_(bytes) {}

    ChunkCache* cache_;  // none once moved from
    CachedChunk* chunk_;
    Access access_;
    std::span<std::byte> bytes_;
  };

  // Uses all of `buffers`. Both outlive this object.
  ChunkCache(FileIo& io, const FileBuffers& buffers, const ChunkCacheOptions& options = {});
  // Waits for what is under way.
  ~ChunkCache();
  ChunkCache(const ChunkCache&) = delete;
  ChunkCache& operator=(const ChunkCache&) = delete;

  // The tiles that will be borrowed next, in this order, instead of those expected before. Never
  // blocks. A borrow of one of the first of them, as many as there are buffers, drops those before
  // it; any other borrow leaves the list as it is.
  void prefetch(const std::vector<Extent>& extents);

  // A tile that was never written is zeros. Several may read a tile at a time, or one write. Blocks
  // until a read has arrived; throws its Error, or the first of a write from the moment on at which
  // it is known. All buffers borrowed is a broken invariant.
  Lease acquire(const Extent& extent, Access access);
  // Whether a borrow would return, or throw, at once, whatever the access. Reads ahead, too.
  bool ready(const Extent& extent);
  // Waits until all that was written has arrived. Throws the first Error of a write.
  void flush();

  Traffic traffic() const;

 private:
  enum class PendingIo { kNone, kRead, kWrite };
  struct CacheBuffer {
    std::span<std::byte> bytes;
    CachedChunk* chunk = nullptr;  // none while it is free
    PendingIo pending_io = PendingIo::kNone;
    FileIo::RequestId request_id = 0;  // of the transfer, until it is waited for
    size_t readers = 0;
    bool writer = false;
    bool needs_zeroing = false;  // the tile is zeros, the bytes are not yet
    uint64_t last_used = 0;      // by use_count_
  };
  struct CachedChunk {
    Extent extent;
    bool written = false;  // a lease to write it has ended
    CacheBuffer* buffer = nullptr;
    std::vector<size_t> next_uses = {};  // in prefetch_list_, the next one at the back
  };

  void release(CachedChunk& chunk, Access access) noexcept;
  CachedChunk& chunk_at(const Extent& extent);
  size_t next_use(const CacheBuffer& buffer);
  void advance(CachedChunk& chunk);
  void read_ahead();
  CacheBuffer* find_evictable(bool may_wait);
  CacheBuffer& evict_buffer();
  void assign(CacheBuffer& buffer, CachedChunk& chunk, bool read);
  void evict(CacheBuffer& buffer);
  std::string load(CacheBuffer& buffer, Access access);
  std::string wait(CacheBuffer& buffer);
  void wait_for_write(CacheBuffer& buffer);
  void finish_writes();
  void throw_if_failed() const;

  FileIo& io_;
  const ChunkCacheOptions options_;
  mutable std::mutex mutex_;
  // Under the mutex.
  std::vector<CacheBuffer> buffers_;
  std::map<uint64_t, CachedChunk> chunks_;  // by offset; all that were ever named
  std::vector<CachedChunk*> prefetch_list_;
  size_t next_ = 0;  // in prefetch_list_
  uint64_t use_count_ = 0;
  double waited_s_ = 0;
  std::string error_;  // the first of a write; the store is useless then
};

}  // namespace zeroth::offload
