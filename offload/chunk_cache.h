// A cache of file chunks in a few buffers of host memory, with read-ahead and write-behind.
// Independent of LibTorch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "offload/access.h"
#include "offload/file_io.h"

namespace zeroth::offload {

// An Extent is a chunk's position in the file. `offset` is a multiple of kFileAlignment; `bytes`,
// at least 1, is rounded up to one in the file.
struct Extent {
  uint64_t offset = 0;
  size_t bytes = 0;
};

struct ChunkCacheOptions {
  bool pipeline_read = true;   // otherwise a chunk is read when it is acquired
  bool pipeline_write = true;  // otherwise the end of a lease waits until its chunk is written
};

// ChunkCache's buffers are free, or hold a chunk that is being read, leased, being written, or
// clean: equal to the file. Acquiring a cached chunk needs no read, also while its write is in
// flight. Read-ahead fills free and clean buffers in the order of prefetch(); of the clean ones it
// first evicts the chunk whose next use is last. acquire(), if no buffer is available, waits for
// the oldest write or evicts the prefetched chunk whose next use is last.
//
// Chunks do not overlap: each keeps the bounds of its first use, otherwise an invariant is broken.
// All methods may be called from any thread; a call waits for another one that blocks.
class ChunkCache {
 private:
  struct CachedChunk;

 public:
  // A Lease gives access to a chunk's bytes, in the mode that acquire() was called with. Its
  // destructor starts the write if that mode can write. The cache must outlive it.
  class Lease {
   public:
    std::span<std::byte> bytes() const { return bytes_; }

   private:
    friend class ChunkCache;
    struct Release {
      ChunkCache* cache;
      Access access;
      void operator()(CachedChunk* chunk) const { cache->release(*chunk, access); }
    };
    Lease(ChunkCache& cache, CachedChunk& chunk, Access access, std::span<std::byte> bytes)
        : chunk_(&chunk, Release{&cache, access}), bytes_(bytes) {}

    std::unique_ptr<CachedChunk, Release> chunk_;
    std::span<std::byte> bytes_;
  };

  // Uses all of `buffers`. `io` and `buffers` must outlive this object.
  ChunkCache(FileIo& io, const FileBuffers& buffers, const ChunkCacheOptions& options = {});
  // Waits for transfers in flight.
  ~ChunkCache();
  ChunkCache(const ChunkCache&) = delete;
  ChunkCache& operator=(const ChunkCache&) = delete;

  // Replaces the list of chunks that will be acquired next, in this order. Never blocks. acquire()
  // of one of the first of them, as many as there are buffers, drops those before it; any other
  // acquire() leaves the list unchanged.
  void prefetch(const std::vector<Extent>& extents);

  // Leases a chunk. A chunk that was never written is zeros. Several readers or one writer may hold
  // a chunk at a time. Blocks until its read is complete. Throws the read's Error, or the first
  // Error of a write once it is known. Breaks an invariant if all buffers are leased.
  Lease acquire(const Extent& extent, Access access);
  // Returns whether acquire() would return or throw at once, whatever the access. Also reads ahead.
  bool ready(const Extent& extent);
  // Blocks until all writes are complete. Throws the first Error of a write.
  void flush();

  Traffic traffic() const;

 private:
  enum class PendingIo { kNone, kRead, kWrite };
  struct CacheBuffer {
    std::span<std::byte> bytes;
    CachedChunk* chunk = nullptr;  // null while the buffer is free
    PendingIo pending_io = PendingIo::kNone;
    FileIo::RequestId request_id = 0;  // of the transfer, until it was waited for
    size_t readers = 0;
    bool writer = false;
    bool needs_zeroing = false;  // the chunk is zeros, but the bytes are not yet
    uint64_t last_used = 0;      // value of use_count_
  };
  struct CachedChunk {
    Extent extent;
    bool written = false;  // a lease to write it has ended
    CacheBuffer* buffer = nullptr;
    std::vector<size_t> next_uses = {};  // indices in prefetch_list_, the next one at the back
  };

  void release(CachedChunk& chunk, Access access) noexcept;
  CachedChunk& chunk_at(const Extent& extent);
  static constexpr size_t kNever = SIZE_MAX;  // of next_use()
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
  // Fields below are guarded by mutex_.
  std::vector<CacheBuffer> buffers_;
  std::map<uint64_t, CachedChunk> chunks_;  // by offset; all that were ever used
  std::vector<CachedChunk*> prefetch_list_;
  size_t next_ = 0;  // index in prefetch_list_
  uint64_t use_count_ = 0;
  double waited_s_ = 0;
  std::string error_;  // of the first failed write; the store is unusable then
};

}  // namespace zeroth::offload
