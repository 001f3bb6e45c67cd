#include "offload/shard_store.h"

#include <ATen/ops/equal.h>
#include <doctest/doctest.h>

#include <random>

#include "base/error.h"
#include "tests/support/late_copies.h"

namespace zeroth::offload::staging_store_test {
namespace {

using testing::copies_of;
using testing::kFakeDevice;
using testing::late_link;
using testing::LateCopies;

constexpr torch::DeviceType kHost = torch::kCPU;

// A host store that counts its leases, holds that they do not clash, and reads none that is named.
class Watched final : public ShardStore {
 public:
  explicit Watched(std::shared_ptr<device::HostLink> link)
      : store_(make_cpu_store(std::move(link))) {}

  size_t add(int64_t numel, torch::Dtype dtype) override { return store_->add(numel, dtype); }
  void prefetch(std::vector<ShardChunk> chunks) override { expected = std::move(chunks); }
  ChunkLease acquire(const ShardChunk& chunk, torch::Device device, Access access) override {
    if (chunk == broken) throw Error("cannot read tile {}", chunk.begin);
    for (const auto& [other, other_access] : held) {
      const bool clash = other.shard == chunk.shard && other.begin < chunk.end &&
                         chunk.begin < other.end &&
                         (access != Access::kRead || other_access != Access::kRead);
      CHECK_FALSE(clash);
    }
    held.emplace_back(chunk, access);
    max_held = std::max(max_held, held.size());
    order.push_back(chunk);
    const auto inner = std::make_shared<ChunkLease>(store_->acquire(chunk, device, access));
    const auto end = [this, inner, chunk, access](void*) {
      held.erase(std::find(held.begin(), held.end(), std::pair(chunk, access)));
    };
    return ChunkLease(inner->tensor(), {nullptr, end});
  }
  bool ready(const ShardChunk& chunk) const override { return chunk != late; }
  void flush() override {}
  StoreBytes bytes() const override { return store_->bytes(); }

  std::vector<ShardChunk> expected, order;
  std::vector<std::pair<ShardChunk, Access>> held;
  size_t max_held = 0;
  ShardChunk late = {99, 0, 0}, broken = {99, 0, 0};

 private:
  std::unique_ptr<ShardStore> store_;
};

struct Staged {
  explicit Staged(StagingOptions options = {}, uint64_t seed = 0) : link(late_link(seed)) {
    auto inner = std::make_unique<Watched>(link);
    watched = inner.get();
    store = make_staging_store(std::move(inner), link, kFakeDevice, options);
  }
  std::shared_ptr<device::HostLink> link;
  Watched* watched;
  std::unique_ptr<ShardStore> store;
};

std::vector<ShardChunk> chunks_of(size_t shard, int64_t numel, int64_t size) {
  std::vector<ShardChunk> chunks;
  for (int64_t begin = 0; begin < numel; begin += size) {
    chunks.push_back({shard, begin, std::min(begin + size, numel)});
  }
  return chunks;
}

}  // namespace

TEST_CASE("states stream through the device, tile by tile, as if they were there") {
  for (const uint64_t seed : {0, 1, 2, 3, 4}) {
    Staged staged({.depth = 3}, seed);
    constexpr int64_t kNumel = 1000;
    for (int shard = 0; shard < 2; ++shard) staged.store->add(kNumel, torch::kFloat);
    torch::Tensor first = torch::zeros({kNumel}), second = torch::zeros({kNumel});
    for (int step = 1; step <= 4; ++step) {
      std::vector<ShardChunk> order;
      for (const ShardChunk& chunk : chunks_of(0, kNumel, 150)) {
        order.push_back(chunk);
        order.push_back({1, chunk.begin, chunk.end});
      }
      staged.store->prefetch(order);
      CHECK((staged.watched->expected == order));
      for (size_t i = 0; i < order.size(); i += 2) {
        const ChunkLease a = staged.store->acquire(order[i], kFakeDevice, Access::kReadWrite);
        const ChunkLease b = staged.store->acquire(order[i + 1], kFakeDevice, Access::kReadWrite);
        a.tensor().add_(step);
        b.tensor().mul_(0.5).add_(a.tensor());
      }
      first.add_(step);
      second.mul_(0.5).add_(first);
    }
    staged.store->flush();
    CHECK(staged.watched->held.empty());
    CHECK(at::equal(staged.store->acquire({0, 0, kNumel}, kHost, Access::kRead).tensor(), first));
    CHECK(at::equal(staged.store->acquire({1, 0, kNumel}, kHost, Access::kRead).tensor(), second));
  }
}

TEST_CASE("tiles are copied ahead in the expected order, as many as the depth") {
  Staged staged({.depth = 2, .expected = Access::kRead});
  staged.store->add(100, torch::kFloat);
  const std::vector<ShardChunk> chunks = chunks_of(0, 100, 20);
  staged.store->prefetch(chunks);
  CHECK((staged.watched->order == std::vector<ShardChunk>(chunks.begin(), chunks.begin() + 2)));
  staged.store->acquire(chunks[0], kFakeDevice, Access::kRead);
  CHECK((staged.watched->order == std::vector<ShardChunk>(chunks.begin(), chunks.begin() + 3)));
  staged.store->acquire(chunks[1], kFakeDevice, Access::kRead);
  CHECK(copies_of(*staged.link).copies() == 4);
  // A new list keeps what was copied and is wanted.
  staged.store->prefetch({chunks[3], chunks[0]});
  CHECK(copies_of(*staged.link).copies() == 5);
  staged.store->acquire(chunks[3], kFakeDevice, Access::kRead);
  CHECK(copies_of(*staged.link).copies() == 5);
}

TEST_CASE("reading ahead stops at a tile that would be waited for") {
  Staged staged({.depth = 4, .expected = Access::kRead});
  staged.store->add(100, torch::kFloat);
  const std::vector<ShardChunk> chunks = chunks_of(0, 100, 20);
  staged.watched->late = chunks[1];
  staged.store->prefetch(chunks);
  CHECK(staged.watched->order.size() == 1);
  staged.watched->late = {99, 0, 0};
  staged.store->acquire(chunks[0], kFakeDevice, Access::kRead);
  CHECK(staged.watched->order.size() == 5);
}

TEST_CASE("what the host writes is what the device reads, also if it was copied ahead before") {
  for (const uint64_t seed : {0, 1, 2, 3, 4, 5, 6, 7}) {
    Staged staged({.depth = 3, .expected = Access::kRead}, seed);
    for (int shard = 0; shard < 4; ++shard) staged.store->add(64, torch::kFloat);
    for (int step = 1; step <= 5; ++step) {
      std::vector<ShardChunk> reads;
      for (size_t shard = 0; shard < 4; ++shard) reads.push_back({shard, 0, 64});
      for (size_t shard = 0; shard < 4; ++shard) reads.push_back({3 - shard, 0, 64});
      staged.store->prefetch(reads);
      for (const ShardChunk& chunk : reads) {
        const bool forward = &chunk - reads.data() < 4;
        if (forward) {  // an update just before the first use
          staged.store->acquire(chunk, kHost, Access::kWrite)
              .tensor()
              .fill_(static_cast<double>(10 * chunk.shard) + step);
        }
        const ChunkLease lease = staged.store->acquire(chunk, kFakeDevice, Access::kRead);
        CHECK(at::equal(lease.tensor(),
                        torch::full({64}, static_cast<double>(10 * chunk.shard) + step)));
      }
    }
    staged.store->flush();
  }
}

TEST_CASE("what the device wrote last is read there at once, from the same memory") {
  for (const uint64_t seed : {0, 1, 2, 3, 4, 5, 6, 7}) {
    Staged staged({.depth = 1, .expected = Access::kRead}, seed);
    for (int shard = 0; shard < 3; ++shard) staged.store->add(64, torch::kFloat);
    const LateCopies& copies = copies_of(*staged.link);
    const auto sum_of = [](size_t shard, int step) {
      return torch::full({64}, static_cast<double>(100 * shard) + step * (step + 1) / 2);
    };
    for (int step = 1; step <= 3; ++step) {
      for (size_t shard = 0; shard < 3; ++shard) {
        const ShardChunk chunk = {shard, 0, 64};
        ChunkLease lease = staged.store->acquire(chunk, kFakeDevice, Access::kReadWrite);
        const void* memory = lease.tensor().data_ptr();
        lease.tensor().add_(step == 1 ? 100.0 * static_cast<double>(shard) + 1 : step);
        lease = ChunkLease();
        const int copied = copies.copies(), waited = copies.waits();
        lease = staged.store->acquire(chunk, kFakeDevice, Access::kRead);
        CHECK(lease.tensor().data_ptr() == memory);
        CHECK(at::equal(lease.tensor(), sum_of(shard, step)));
        CHECK(copies.copies() == copied);
        CHECK(copies.waits() == waited);
      }
    }
    // The memory went on to other tiles, and no copy back took their values.
    CHECK(copies.waits() == 0);
    CHECK(staged.store->bytes().host - staged.watched->bytes().host <= 2 * 256);
    for (size_t shard = 0; shard < 3; ++shard) {
      const ChunkLease lease = staged.store->acquire({shard, 0, 64}, kHost, Access::kRead);
      CHECK(at::equal(lease.tensor(), sum_of(shard, 3)));
    }
    CHECK(staged.watched->held.empty());
  }
}

TEST_CASE("what the device wrote is not read from its memory once something else was lent") {
  Staged staged({.depth = 1, .expected = Access::kRead});
  staged.store->add(64, torch::kFloat);
  const ShardChunk chunk = {0, 0, 64};
  staged.store->acquire(chunk, kFakeDevice, Access::kWrite).tensor().fill_(1);
  staged.store->acquire(chunk, kHost, Access::kReadWrite).tensor().add_(1);
  CHECK(staged.store->acquire(chunk, kFakeDevice, Access::kRead).tensor()[63].item<float>() == 2);
  staged.store->acquire(chunk, kFakeDevice, Access::kWrite).tensor().fill_(3);
  staged.store->acquire({0, 0, 32}, kFakeDevice, Access::kReadWrite).tensor().fill_(4);
  const ChunkLease lease = staged.store->acquire(chunk, kFakeDevice, Access::kRead);
  CHECK(at::equal(lease.tensor(), at::cat({torch::full({32}, 4.0), torch::full({32}, 3.0)})));
  CHECK(staged.store->bytes().host - staged.watched->bytes().host == 64 * 4);  // one at a time
}

TEST_CASE("a tile cut otherwise, or read ahead and then written on the device, is up to date") {
  Staged staged({.depth = 2, .expected = Access::kRead});
  staged.store->add(100, torch::kFloat);
  staged.store->prefetch({{0, 0, 100}});
  staged.store->acquire({0, 50, 100}, kHost, Access::kReadWrite).tensor().fill_(1);
  staged.store->acquire({0, 0, 50}, kFakeDevice, Access::kReadWrite).tensor().fill_(2);
  const ChunkLease lease = staged.store->acquire({0, 0, 100}, kFakeDevice, Access::kRead);
  CHECK(at::equal(lease.tensor(), at::cat({torch::full({50}, 2.0), torch::full({50}, 1.0)})));
}

TEST_CASE("a tile that the host reads twice is not copied ahead to be written while one reads") {
  Staged staged({.depth = 1, .expected = Access::kReadWrite});
  staged.store->add(100, torch::kFloat);
  const ShardChunk chunk = {0, 0, 100};
  ChunkLease first = staged.store->acquire(chunk, kHost, Access::kRead);
  ChunkLease second = staged.store->acquire(chunk, kHost, Access::kRead);
  staged.store->prefetch({chunk});
  first = ChunkLease();
  CHECK(staged.watched->held.size() == 1);
  second = ChunkLease();
  REQUIRE(staged.watched->held.size() == 1);
  CHECK(staged.watched->held.front().second == Access::kReadWrite);
}

TEST_CASE("only reading on the device leaves what rests as it is") {
  for (const Access expected : {Access::kRead, Access::kReadWrite}) {
    Staged staged({.depth = 2, .expected = expected});
    staged.store->add(10, torch::kFloat);
    staged.store->prefetch({{0, 0, 10}});
    staged.store->acquire({0, 0, 10}, kFakeDevice, Access::kRead).tensor().fill_(9);
    staged.store->flush();
    CHECK(staged.watched->held.empty());
    CHECK(staged.store->acquire({0, 0, 10}, kHost, Access::kRead).tensor().sum().item<float>() ==
          0);
  }
}

TEST_CASE("no more tiles of the inner store are borrowed than it may lend") {
  for (const uint64_t seed : {0, 1, 2}) {
    Staged staged({.depth = 8, .inner_leases = 3}, seed);
    staged.store->add(1000, torch::kFloat);
    for (int step = 0; step < 2; ++step) {
      const std::vector<ShardChunk> chunks = chunks_of(0, 1000, 50);
      staged.store->prefetch(chunks);
      for (const ShardChunk& chunk : chunks) {
        const ChunkLease one = staged.store->acquire(chunk, kFakeDevice, Access::kReadWrite);
        one.tensor().add_(1);
      }
    }
    staged.store->flush();
    CHECK(staged.watched->max_held <= 3);
    CHECK(at::equal(staged.store->acquire({0, 0, 1000}, kHost, Access::kRead).tensor(),
                    torch::full({1000}, 2.0)));
  }
}

TEST_CASE("a tile that cannot be read ahead is the next borrow's error") {
  Staged staged({.depth = 2});
  staged.store->add(100, torch::kFloat);
  staged.watched->broken = {0, 50, 100};
  staged.store->prefetch({{0, 0, 50}, {0, 50, 100}});
  CHECK_THROWS_WITH_AS(staged.store->acquire({0, 0, 50}, kFakeDevice, Access::kReadWrite),
                       "cannot read tile 50", Error);
}

TEST_CASE("what is borrowed ahead is ordered where it is used, and no earlier") {
  for (const auto expected : {Access::kRead, Access::kReadWrite}) {
    Staged staged({.depth = 1, .expected = expected});
    for (int shard = 0; shard < 2; ++shard) staged.store->add(64, torch::kFloat);
    for (const size_t shard : {0, 1}) {
      staged.store->acquire({shard, 0, 64}, kHost, Access::kWrite)
          .tensor()
          .fill_(static_cast<double>(shard) + 1);
    }
    const LateCopies& copies = copies_of(*staged.link);
    ChunkLease next = staged.store->acquire_async({1, 0, 64}, kFakeDevice);
    CHECK(copies.under_way() == 1);
    const ChunkLease now = staged.store->acquire({0, 0, 64}, kFakeDevice, Access::kRead);
    CHECK(at::equal(now.tensor(), torch::ones({64})));
    CHECK(copies.under_way() == 1);
    next.block_current_stream();
    CHECK(copies.under_way() == 0);
    CHECK(at::equal(next.tensor(), torch::full({64}, 2.0)));
  }
}

TEST_CASE("memory of a tile that was borrowed ahead and never used is free behind its copy") {
  for (const uint64_t seed : {0, 1, 2, 3}) {
    Staged staged({.depth = 1, .expected = Access::kRead}, seed);
    for (int shard = 0; shard < 4; ++shard) staged.store->add(64, torch::kFloat);
    for (size_t shard = 0; shard < 4; ++shard) {
      staged.store->acquire({shard, 0, 64}, kHost, Access::kWrite)
          .tensor()
          .fill_(static_cast<double>(shard));
    }
    for (size_t shard = 0; shard < 3; ++shard) {
      staged.store->acquire_async({shard, 0, 64}, kFakeDevice);
      const ChunkLease lease =
          staged.store->acquire({shard + 1, 0, 64}, kFakeDevice, Access::kRead);
      CHECK(at::equal(lease.tensor(), torch::full({64}, static_cast<double>(shard) + 1)));
    }
    staged.store->flush();
    CHECK(staged.watched->held.empty());
  }
}

TEST_CASE("device memory stays at what is leased and copied ahead") {
  Staged staged({.depth = 2});
  staged.store->add(1000, torch::kFloat);
  const std::vector<ShardChunk> chunks = chunks_of(0, 1000, 100);
  for (int step = 0; step < 3; ++step) {
    staged.store->prefetch(chunks);
    for (const ShardChunk& chunk : chunks) {
      staged.store->acquire(chunk, kFakeDevice, Access::kReadWrite).tensor().add_(1);
    }
  }
  CHECK(staged.store->bytes().host - staged.watched->bytes().host <= 3 * 400);
}

}  // namespace zeroth::offload::staging_store_test
