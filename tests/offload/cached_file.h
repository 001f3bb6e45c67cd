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

#include "offload/tile_cache.h"
#include "tests/offload/faulty_lane.h"
#include "tests/support/temp_folder.h"

namespace zeroth::offload {

inline constexpr size_t kTileBytes = 4 * kFileAlignment;
inline constexpr size_t kNumTiles = 12;

inline std::optional<int64_t> no_fault(const FilePiece&) {
  return std::nullopt;
}

struct CachedFile {
  CachedFile(Engine engine, size_t buffers, TileCacheOptions options = {},
             FaultRule rule = no_fault)
      : pool(buffers, kTileBytes),
        io(file, faulty(make_file_lanes(lane_options(file, engine)), std::move(rule)),
           kFileAlignment),
        cache(io, pool, options) {}

  TempFolder folder;
  SwapFile file{{folder.path(), "test", 0}, kNumTiles* kTileBytes};
  FileBuffers pool;
  FileIo io;
  TileCache cache;
};

// The last tile ends within a block.
inline Extent tile_at(size_t i) {
  return {i * kTileBytes, i + 1 < kNumTiles ? kTileBytes : kTileBytes - 1000};
}

inline std::vector<Extent> tiles_at(std::initializer_list<size_t> places) {
  std::vector<Extent> tiles;
  for (const size_t i : places) tiles.push_back(tile_at(i));
  return tiles;
}

inline std::vector<Extent> all_tiles() {
  std::vector<Extent> tiles;
  for (size_t i = 0; i < kNumTiles; ++i) tiles.push_back(tile_at(i));
  return tiles;
}

inline void put(TileCache& cache, size_t i, uint64_t seed) {
  const TileCache::Lease lease = cache.borrow(tile_at(i), Access::kWrite);
  fill_randomly(lease.bytes(), seed);
}

inline bool holds(std::span<const std::byte> bytes, uint64_t seed) {
  std::vector<std::byte> expected(bytes.size());
  fill_randomly(expected, seed);
  return same(bytes, expected);
}

inline bool holds(TileCache& cache, size_t i, uint64_t seed) {
  return holds(cache.borrow(tile_at(i), Access::kRead).bytes(), seed);
}

inline bool are_zero(std::span<const std::byte> bytes) {
  return std::all_of(bytes.begin(), bytes.end(),
                     [](std::byte byte) { return byte == std::byte{}; });
}

// Tile i from seed i. Each is on the file before the next one comes, so that the buffers hold the
// last tiles, clean, however fast which write is.
inline void fill_file(TileCache& cache) {
  for (size_t i = 0; i < kNumTiles; ++i) {
    put(cache, i, i);
    cache.settle();
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
