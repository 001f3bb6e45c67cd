// A file behind a cache of tiles, and what tests of it share.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "offload/chunk_cache.h"
#include "tests/offload/faulty_worker.h"
#include "tests/support/temp_folder.h"

namespace zeroth::offload {

inline constexpr size_t kChunkBytes = 4 * kFileAlignment;
inline constexpr size_t kNumChunks = 12;

inline std::optional<int64_t> no_fault(const IoOperation&) {
  return std::nullopt;
}

struct CachedFile {
  CachedFile(IoEngine engine, size_t buffers, ChunkCacheOptions options = {},
             FaultRule rule = no_fault)
      : pool(buffers, kChunkBytes),
        io(file, faulty(make_io_workers(worker_options(file, engine)), std::move(rule)),
           kFileAlignment),
        cache(io, pool, options) {}

  TempFolder directory;
  SwapFile file{{directory.path(), "test", 0}, kNumChunks* kChunkBytes};
  FileBuffers pool;
  FileIo io;
  ChunkCache cache;
};

// The last tile ends within a block.
inline Extent chunk_at(size_t i) {
  return {i * kChunkBytes, i + 1 < kNumChunks ? kChunkBytes : kChunkBytes - 1000};
}

inline std::vector<Extent> chunks_at(std::initializer_list<size_t> places) {
  std::vector<Extent> chunks;
  for (const size_t i : places) chunks.push_back(chunk_at(i));
  return chunks;
}

inline std::vector<Extent> all_chunks() {
  std::vector<Extent> chunks;
  for (size_t i = 0; i < kNumChunks; ++i) chunks.push_back(chunk_at(i));
  return chunks;
}

inline void put(ChunkCache& cache, size_t i, uint64_t seed) {
  const ChunkCache::Lease lease = cache.acquire(chunk_at(i), Access::kWrite);
  fill_randomly(lease.bytes(), seed);
}

inline bool holds(std::span<const std::byte> bytes, uint64_t seed) {
  std::vector<std::byte> expected(bytes.size());
  fill_randomly(expected, seed);
  return same(bytes, expected);
}

inline bool holds(ChunkCache& cache, size_t i, uint64_t seed) {
  return holds(cache.acquire(chunk_at(i), Access::kRead).bytes(), seed);
}

inline bool are_zero(std::span<const std::byte> bytes) {
  return std::all_of(bytes.begin(), bytes.end(),
                     [](std::byte byte) { return byte == std::byte{}; });
}

// Tile i from seed i. Each is on the file before the next one comes, so that the buffers hold the
// last tiles, clean, however fast which write is.
inline void fill_file(ChunkCache& cache) {
  for (size_t i = 0; i < kNumChunks; ++i) {
    put(cache, i, i);
    cache.flush();
  }
}

// What happens in another thread happens within seconds.
template <typename Condition>
bool soon(Condition condition) {
  for (int i = 0; i < 5000 && !condition(); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return condition();
}

// Holds back the pieces that it is asked about while it is shut.
class Gate {
 public:
  void set(bool open) {
    {
      const std::lock_guard lock(mutex_);
      open_ = open;
    }
    changed_.notify_all();
  }
  void pass() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return open_; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool open_ = true;
};

}  // namespace zeroth::offload
