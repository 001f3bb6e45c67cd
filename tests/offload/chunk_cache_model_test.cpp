// A cache of tiles against a plain array, in many orders; and what becomes of it when the file
// fails.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <filesystem>
#include <map>
#include <random>

#include "base/error.h"
#include "tests/offload/cached_file.h"
#include "tests/offload/mount.h"

namespace zeroth::offload::chunk_cache_model_test {
namespace {

// Borrows, writes and gives back at random, several tiles at a time, and compares with an array.
class Player {
 public:
  Player(ChunkCache& cache, size_t max_leases, uint64_t seed)
      : cache_(cache), max_leases_(max_leases), random_(seed) {}

  void play(int moves) {
    for (int move = 0; move < moves; ++move) {
      switch (pick(8)) {
        case 0:
          prefetch();
          break;
        case 1:
          if (pick(4) == 0) cache_.flush();
          break;
        case 2:
        case 3:
          if (!held_.empty()) release();
          break;
        default:
          if (held_.size() < max_leases_) acquire();
      }
    }
    while (!held_.empty()) release();
  }

  void compare_all() {
    for (size_t i = 0; i < kNumChunks; ++i) {
      check(i, cache_.acquire(chunk_at(i), Access::kRead).bytes());
    }
  }

 private:
  size_t pick(size_t choices) { return random_() % choices; }

  // A list, of which the next borrows take most.
  void prefetch() {
    plan_.clear();
    std::vector<Extent> chunks;
    for (size_t n = pick(2 * kNumChunks); n-- > 0;) {
      plan_.push_back(pick(kNumChunks));
      chunks.push_back(chunk_at(plan_.back()));
    }
    std::reverse(plan_.begin(), plan_.end());
    cache_.prefetch(chunks);
  }

  void acquire() {
    size_t i = pick(kNumChunks);
    if (!plan_.empty() && pick(5) > 0) {
      i = plan_.back();
      plan_.pop_back();
    }
    if (held_.contains(i)) return;
    const auto access = std::array{Access::kRead, Access::kReadWrite, Access::kWrite}[pick(3)];
    ChunkCache::Lease lease = cache_.acquire(chunk_at(i), access);
    if (access != Access::kWrite) check(i, lease.bytes());
    if (access != Access::kRead) {
      seeds_[i] = random_() | 1;
      fill_randomly(lease.bytes(), seeds_[i]);
    }
    held_.emplace(i, std::move(lease));
  }

  void release() {
    auto any = held_.begin();
    std::advance(any, pick(held_.size()));
    check(any->first, any->second.bytes());  // nobody touched it meanwhile
    held_.erase(any);
  }

  void check(size_t i, std::span<const std::byte> bytes) const {
    REQUIRE_MESSAGE((seeds_[i] == 0 ? are_zero(bytes) : holds(bytes, seeds_[i])), "tile ", i);
  }

  ChunkCache& cache_;
  const size_t max_leases_;
  std::mt19937_64 random_;
  std::vector<uint64_t> seeds_ = std::vector<uint64_t>(kNumChunks, 0);  // 0: never written
  std::map<size_t, ChunkCache::Lease> held_;
  std::vector<size_t> plan_;  // the next at the back
};

// Short, interrupted and slow transfers.
FaultRule bumpy(uint64_t seed) {
  return
      [random = std::mt19937_64(seed)](const IoOperation& piece) mutable -> std::optional<int64_t> {
        switch (random() % 8) {
          case 0:
            return -EINTR;
          case 1:
            return -EAGAIN;
          case 2:
            return static_cast<int64_t>(random() % piece.length + 1) | 4096;
          case 3:
            std::this_thread::sleep_for(std::chrono::microseconds(random() % 300));
            return std::nullopt;
          default:
            return std::nullopt;
        }
      };
}

}  // namespace

TEST_CASE("tiles hold what an array holds, in any order, with any buffers and pipelines") {
  uint64_t seed = 0;
  for (const auto engine : engines()) {
    for (const size_t buffers : {1, 2, 3, 5, 16}) {
      for (const bool pipeline_read : {false, true}) {
        for (const bool pipeline_write : {false, true}) {
          ++seed;
          INFO("seed ", seed, ", ", buffers, " buffers");
          CachedFile f(engine, buffers, {pipeline_read, pipeline_write}, bumpy(seed));
          Player player(f.cache, 1 + (buffers - 1) / 2, seed);
          player.play(300);
          f.cache.flush();
          player.compare_all();
        }
      }
    }
  }
}

TEST_CASE("threads that use different tiles of a cache do not disturb each other") {
  for (const auto engine : engines()) {
    CachedFile f(engine, 6, {}, bumpy(5));
    std::atomic<int> wrong = 0;
    std::vector<std::jthread> threads;
    for (size_t first = 0; first < 3; ++first) {
      threads.emplace_back([&, first] {
        std::vector<Extent> mine;
        for (size_t i = first; i < kNumChunks; i += 3) mine.push_back(chunk_at(i));
        for (uint64_t round = 0; round < 12; ++round) {
          f.cache.prefetch(mine);
          for (size_t i = first; i < kNumChunks; i += 3) {
            const auto lease = f.cache.acquire(chunk_at(i), Access::kReadWrite);
            const bool as_left =
                round == 0 ? are_zero(lease.bytes()) : holds(lease.bytes(), i * 1000 + round - 1);
            if (!as_left) ++wrong;
            fill_randomly(lease.bytes(), i * 1000 + round);
          }
        }
      });
    }
    threads.clear();
    CHECK(wrong == 0);
  }
}

TEST_CASE("a read ahead that failed is the error of its own tile, which is read again after it") {
  for (const auto engine : engines()) {
    std::atomic<int> failures = 0;
    CachedFile f(engine, 4, {}, [&](const IoOperation& piece) -> std::optional<int64_t> {
      const bool fails = piece.op == FileOp::kRead &&
                         piece.offset == 2 * kChunkBytes + kFileAlignment && failures > 0;
      if (!fails) return std::nullopt;
      --failures;
      return -EIO;
    });
    fill_file(f.cache);
    failures = 1;
    f.cache.prefetch(chunks_at({1, 2, 3}));
    CHECK(holds(f.cache, 1, 1));
    CHECK(message_of<Error>([&] { holds(f.cache, 2, 2); }) ==
          fmt::format("cannot read 4096 bytes at offset 36864 of {}: Input/output error",
                      f.file.path()));
    CHECK(holds(f.cache, 2, 2));
    CHECK(holds(f.cache, 3, 3));
    // One that nobody wants in the end hurts nobody, nor one of a tile that is only written.
    failures = 1;
    f.cache.prefetch(chunks_at({0, 1}));
    f.cache.prefetch(chunks_at({2}));
    f.cache.prefetch({});
    for (const size_t i : {5, 6, 7, 8, 9}) CHECK(holds(f.cache, i, i));
    failures = 1;
    f.cache.prefetch(chunks_at({2}));
    put(f.cache, 2, 77);
    CHECK(holds(f.cache, 2, 77));
    f.cache.flush();
  }
}

TEST_CASE("a write that failed is the error of every borrow and settle after it") {
  for (const auto engine : engines()) {
    for (const bool pipeline_write : {false, true}) {
      std::atomic<bool> full = false;
      CachedFile f(engine, 3, {.pipeline_write = pipeline_write},
                   [&](const IoOperation& piece) -> std::optional<int64_t> {
                     const bool fails =
                         piece.op == FileOp::kWrite && full && piece.offset == 4 * kChunkBytes;
                     return fails ? std::optional<int64_t>(-ENOSPC) : std::nullopt;
                   });
      fill_file(f.cache);
      full = true;
      f.cache.prefetch(all_chunks());
      const std::string said = fmt::format(
          "cannot write 4096 bytes at offset 65536 of {}: No space left on device", f.file.path());
      CHECK(message_of<Error>([&] {
              for (size_t i = 0; i < kNumChunks; ++i) {
                fill_randomly(f.cache.acquire(chunk_at(i), Access::kReadWrite).bytes(), 100 + i);
              }
              f.cache.flush();
            }) == said);
      full = false;
      CHECK(message_of<Error>([&] { f.cache.flush(); }) == said);
      CHECK(message_of<Error>([&] { put(f.cache, 1, 1); }) == said);
      f.cache.prefetch(all_chunks());
    }
  }
}

TEST_CASE("errors at random are thrown or make no difference, and nothing hangs") {
  for (const auto engine : engines()) {
    for (uint64_t seed = 0; seed < 40; ++seed) {
      INFO("seed ", seed);
      CachedFile f(
          engine, 4, {seed % 2 == 0, seed % 3 == 0},
          [random = std::mt19937_64(seed)](const IoOperation&) mutable -> std::optional<int64_t> {
            if (random() % 400 == 0) return -EIO;
            return std::nullopt;
          });
      Player player(f.cache, 3, seed);
      try {
        player.play(200);
        f.cache.flush();
        player.compare_all();
      } catch (const Error& error) {
        CHECK(std::string(error.what()).ends_with("Input/output error"));
      }
    }
  }
}

TEST_CASE("a file that is cut off while it is used is an error with path and offset") {
  for (const auto engine : engines()) {
    CachedFile f(engine, 3);
    fill_file(f.cache);
    f.cache.prefetch(all_chunks());
    CHECK(holds(f.cache, 0, 0));
    REQUIRE(::ftruncate(f.file.descriptor(), 6 * kChunkBytes + 100) == 0);
    for (size_t i = 1; i < 6; ++i) CHECK(holds(f.cache, i, i));
    const std::string said = message_of<Error>([&] { holds(f.cache, 6, 6); });
    INFO(said);
    CHECK(said.starts_with("cannot read 4096 bytes at offset "));
    CHECK(said.find(" of " + f.file.path() + ": only ") != std::string::npos);
    CHECK(said.ends_with(" bytes were transferred, the file ends there"));
  }
}

TEST_CASE("a disk that is really full is the error of the next borrow") {
  TempFolder directory;
  const Mount small(directory.path(), "tmpfs", "size=1m");
  if (!small) return;
  const SwapFile file({directory.path(), "run", 0}, kNumChunks * kChunkBytes);
  for (const auto engine : engines()) {
    FileBuffers pool(3, kChunkBytes);
    FileIo io(file, make_io_workers(worker_options(file, engine)));
    ChunkCache cache(io, pool);
    fill_file(cache);
    // Somebody takes the place of what the file gives up.
    REQUIRE(::fallocate(file.descriptor(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                        4 * kChunkBytes, 8 * kChunkBytes) == 0);
    directory.write("filler", std::string(*free_bytes(directory.path()), 'x'));
    CHECK_THROWS_WITH_AS(fill_file(cache),
                         doctest::Contains("zeroth-run/rank-0.swap: No space left on device"),
                         Error);
    std::filesystem::remove(directory / "filler");
  }
}

TEST_CASE("a cache that ends with transfers under way waits for them") {
  for (const auto engine : engines()) {
    TempFolder directory;
    const SwapFile file({directory.path(), "test", 0}, kNumChunks * kChunkBytes);
    FileBuffers pool(5, kChunkBytes);
    const auto slowly = [](const IoOperation&) -> std::optional<int64_t> {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      return std::nullopt;
    };
    FileIo io(file, faulty(make_io_workers(worker_options(file, engine)), slowly), kFileAlignment);
    {
      ChunkCache cache(io, pool);
      fill_file(cache);
      for (size_t i = 0; i < 3; ++i) put(cache, i, i);
      cache.prefetch(all_chunks());
    }
    CHECK(io.traffic().bytes_written == int64_t{(kNumChunks + 3) * kChunkBytes});
    CHECK(io.traffic().bytes_read > 0);
  }
}

}  // namespace zeroth::offload::chunk_cache_model_test
