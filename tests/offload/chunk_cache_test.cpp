#include "offload/chunk_cache.h"

#include <doctest/doctest.h>

#include <atomic>

#include "base/error.h"
#include "tests/offload/cached_file.h"

namespace zeroth::offload::chunk_cache_test {
namespace {

constexpr auto kBytes = static_cast<int64_t>(kChunkBytes);

}  // namespace

TEST_CASE("a tile that was never written is zeros and is not read") {
  for (const auto engine : engines()) {
    CachedFile f(engine, 2);
    f.cache.prefetch(all_chunks());
    for (size_t i = 0; i < kNumChunks; ++i) {
      CHECK(are_zero(f.cache.acquire(chunk_at(i), Access::kRead).bytes()));
      put(f.cache, i, i);  // so that buffers are not zero when they go to the next tile
    }
    CHECK(f.cache.traffic().bytes_read == 0);
  }
}

TEST_CASE("what was written comes back from the file, the short last tile too") {
  for (const auto engine : engines()) {
    for (const size_t buffers : {1, 3, 20}) {
      CachedFile f(engine, buffers);
      fill_file(f.cache);
      CHECK(f.cache.traffic().bytes_written == kBytes * static_cast<int64_t>(kNumChunks));
      for (size_t i = 0; i < kNumChunks; ++i) CHECK(holds(f.cache, i, i));
      if (buffers == 20) CHECK(f.cache.traffic().bytes_read == 0);
    }
  }
}

TEST_CASE("reading ahead goes as deep as there are buffers, in the order that is expected") {
  for (const auto engine : engines()) {
    CachedFile f(engine, 3);
    fill_file(f.cache);  // the buffers hold tiles 9, 10 and 11, clean
    f.cache.prefetch(chunks_at({4, 2, 0, 6}));
    REQUIRE(soon([&] { return f.cache.traffic().bytes_read == 3 * kBytes; }));
    // A borrow that waited for nothing, and a fourth tile in the place of the first.
    { const auto lease = f.cache.acquire(chunk_at(4), Access::kRead); }
    REQUIRE(soon([&] { return f.cache.traffic().bytes_read == 4 * kBytes; }));
    for (const size_t i : {2, 0, 6}) CHECK(holds(f.cache, i, i));
    CHECK(f.cache.traffic().bytes_read == 4 * kBytes);
  }
}

TEST_CASE("what is expected again soon keeps its buffer before what is not expected") {
  for (const auto engine : engines()) {
    CachedFile f(engine, 3);
    fill_file(f.cache);
    f.cache.prefetch(chunks_at({11, 0, 11, 1, 11, 2, 11, 3}));
    for (const size_t i : {11, 0, 11, 1, 11, 2, 11, 3}) CHECK(holds(f.cache, i, i));
    CHECK(f.cache.traffic().bytes_read == 4 * kBytes);
  }
}

TEST_CASE("a tile whose write is under way is borrowed from its buffer") {
  for (const auto engine : engines()) {
    Gate gate;
    CachedFile f(engine, 3, {}, [&](const IoOperation&) -> std::optional<int64_t> {
      gate.pass();
      return std::nullopt;
    });
    gate.set(false);
    put(f.cache, 5, 50);
    f.cache.prefetch(chunks_at({5}));
    CHECK(holds(f.cache, 5, 50));  // no wait: nothing has passed yet
    CHECK(f.cache.traffic().bytes_written == 0);
    gate.set(true);
    put(f.cache, 5, 51);
    CHECK(holds(f.cache, 5, 51));
    f.cache.flush();
    CHECK(f.cache.traffic().bytes_read == 0);
    CHECK(f.cache.traffic().bytes_written == 2 * kBytes);
    for (const size_t i : {0, 1, 2}) put(f.cache, i, i);
    CHECK(holds(f.cache, 5, 51));  // from the file
  }
}

TEST_CASE("a lease that writes all of a tile reads nothing") {
  for (const auto engine : engines()) {
    CachedFile f(engine, 2);
    fill_file(f.cache);
    fill_file(f.cache);
    CHECK(f.cache.traffic().bytes_read == 0);
  }
}

TEST_CASE("without pipeline_read nothing is read before it is borrowed") {
  for (const auto engine : engines()) {
    CachedFile f(engine, 4, {.pipeline_read = false});
    fill_file(f.cache);
    f.cache.prefetch(all_chunks());
    for (size_t i = 0; i < 4; ++i) {
      CHECK(f.cache.traffic().bytes_read == static_cast<int64_t>(i) * kBytes);
      CHECK(holds(f.cache, i, i));
    }
    CHECK(f.io.traffic().in_flight_s > 0);
  }
}

TEST_CASE("without pipeline_write a lease ends when its tile is written") {
  for (const auto engine : engines()) {
    CachedFile f(engine, 4, {.pipeline_write = false});
    for (size_t i = 0; i < kNumChunks; ++i) {
      put(f.cache, i, i);
      CHECK(f.cache.traffic().bytes_written == static_cast<int64_t>(i + 1) * kBytes);
    }
  }
}

TEST_CASE("an expectation that is replaced leaves clean buffers, which others get") {
  for (const auto engine : engines()) {
    Gate gate;
    CachedFile f(engine, 3, {}, [&](const IoOperation&) -> std::optional<int64_t> {
      gate.pass();
      return std::nullopt;
    });
    fill_file(f.cache);
    gate.set(false);
    f.cache.prefetch(chunks_at({0, 1, 2}));
    f.cache.prefetch(chunks_at({2, 3, 4}));  // which does not block
    f.cache.prefetch({});
    f.cache.prefetch(chunks_at({3, 4, 5, 6}));
    gate.set(true);
    for (const size_t i : {3, 4, 5, 6, 0}) CHECK(holds(f.cache, i, i));
  }
}

TEST_CASE("a tile whose write is under way is not written again before it has ended") {
  for (const auto engine : engines()) {
    Gate gate;
    CachedFile f(engine, 3, {}, [&](const IoOperation&) -> std::optional<int64_t> {
      gate.pass();
      return std::nullopt;
    });
    gate.set(false);
    put(f.cache, 5, 50);
    std::atomic<bool> acquired = false;
    std::jthread writer([&] {
      const auto lease = f.cache.acquire(chunk_at(5), Access::kReadWrite);
      acquired = true;
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    CHECK_FALSE(acquired);
    gate.set(true);
    writer.join();
    CHECK(acquired);
  }
}

TEST_CASE("a borrow of one of the next tiles drops those before it; others change no expectation") {
  for (const auto engine : engines()) {
    CachedFile f(engine, 3);
    fill_file(f.cache);
    f.cache.prefetch(chunks_at({0, 1, 2, 3, 4, 5, 0}));
    const auto has_read = [&](int64_t chunks) {
      return soon([&] { return f.cache.traffic().bytes_read == chunks * kBytes; });
    };
    REQUIRE(has_read(3));
    {
      const auto one = f.cache.acquire(chunk_at(0), Access::kRead);
      const auto two = f.cache.acquire(chunk_at(0), Access::kRead);  // not that of the list's end
    }
    CHECK(has_read(4));
    CHECK(holds(f.cache, 2, 2));  // so 1 is not needed any more
    CHECK(has_read(6));
    for (const size_t i : {3, 4, 5, 0}) CHECK(holds(f.cache, i, i));
    CHECK(has_read(7));
  }
}

TEST_CASE("whether a tile is ready is known without waiting") {
  for (const auto engine : engines()) {
    Gate gate;
    CachedFile f(engine, 2, {}, [&](const IoOperation&) -> std::optional<int64_t> {
      gate.pass();
      return std::nullopt;
    });
    CHECK(f.cache.ready(chunk_at(0)));  // zeros
    fill_file(f.cache);
    CHECK(f.cache.ready(chunk_at(kNumChunks - 1)));
    CHECK_FALSE(f.cache.ready(chunk_at(0)));
    gate.set(false);
    f.cache.prefetch(chunks_at({0, 1, 2}));
    CHECK_FALSE(f.cache.ready(chunk_at(0)));
    gate.set(true);
    CHECK(soon([&] { return f.cache.ready(chunk_at(0)); }));
    CHECK(holds(f.cache, 0, 0));
    REQUIRE(soon([&] { return f.cache.ready(chunk_at(2)); }));
    f.cache.prefetch({});
    gate.set(false);
    put(f.cache, 0, 5);
    CHECK_FALSE(f.cache.ready(chunk_at(0)));
    gate.set(true);
    CHECK(soon([&] { return f.cache.ready(chunk_at(0)); }));
  }
}

TEST_CASE("a borrow without a free buffer gives up what was read ahead and is expected last") {
  for (const auto engine : engines()) {
    CachedFile f(engine, 3);
    fill_file(f.cache);
    f.cache.prefetch(chunks_at({0, 1, 2}));
    REQUIRE(soon([&] { return f.cache.traffic().bytes_read == 3 * kBytes; }));
    CHECK(holds(f.cache, 7, 7));  // instead of 2
    CHECK(holds(f.cache, 0, 0));
    CHECK(holds(f.cache, 1, 1));
    CHECK(holds(f.cache, 2, 2));
    CHECK(f.cache.traffic().bytes_read == 5 * kBytes);
  }
}

TEST_CASE("traffic tells how long transfers were under way, and of that how long a caller waited") {
  for (const auto engine : engines()) {
    std::atomic<bool> slow = false;
    CachedFile f(engine, 2, {}, [&](const IoOperation&) -> std::optional<int64_t> {
      if (slow) std::this_thread::sleep_for(std::chrono::milliseconds(10));
      return std::nullopt;
    });
    fill_file(f.cache);
    const auto start = std::chrono::steady_clock::now();
    const Traffic before = f.cache.traffic();
    slow = true;
    CHECK(holds(f.cache, 0, 0));  // 4 pieces
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    const Traffic after = f.cache.traffic();
    const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - start;
    CHECK(after.in_flight_s - before.in_flight_s >= 0.035);
    CHECK(after.in_flight_s - before.in_flight_s <= passed.count() - 0.029);
    CHECK(after.waited_s - before.waited_s >= 0.035);
    CHECK(after.waited_s - before.waited_s <= passed.count() - 0.029);
  }
}

TEST_CASE("a borrow of more than there is, and tiles cut in two ways, are broken invariants") {
  CachedFile f(IoEngine::kThreads, 2);
  const auto one = f.cache.acquire(chunk_at(0), Access::kReadWrite);
  const auto two = f.cache.acquire(chunk_at(1), Access::kRead);
  CHECK_THROWS_WITH_AS(f.cache.acquire(chunk_at(2), Access::kRead),
                       doctest::Contains("all 2 buffers are leased, 1 of them for writing"),
                       InternalError);
  CHECK_THROWS_AS(f.cache.acquire(chunk_at(0), Access::kRead), InternalError);
  CHECK_THROWS_AS(f.cache.acquire(chunk_at(1), Access::kReadWrite), InternalError);
  CHECK(are_zero(f.cache.acquire(chunk_at(1), Access::kRead).bytes()));
  CHECK_THROWS_AS(f.cache.acquire({0, kChunkBytes - 1}, Access::kRead), InternalError);
  CHECK_THROWS_AS(f.cache.acquire({kFileAlignment, 1}, Access::kRead), InternalError);
  CHECK_THROWS_AS(f.cache.prefetch({{kChunkBytes * 2, kChunkBytes + 1}}), InternalError);
  CHECK_THROWS_AS(f.cache.prefetch({{100, 100}}), InternalError);
  CHECK_THROWS_AS(f.cache.prefetch({{kChunkBytes * 3, 0}}), InternalError);
}

TEST_CASE("a tile that ends before the next begins does not overlap it on the file either") {
  CachedFile f(IoEngine::kThreads, 2);
  { const auto lease = f.cache.acquire({kChunkBytes, 100}, Access::kRead); }
  CHECK_THROWS_AS(f.cache.acquire({0, kChunkBytes + 1}, Access::kRead), InternalError);
  { const auto lease = f.cache.acquire({kChunkBytes + kFileAlignment, 100}, Access::kRead); }
}

}  // namespace zeroth::offload::chunk_cache_test
