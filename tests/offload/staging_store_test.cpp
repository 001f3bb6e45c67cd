#include "offload/staging_store.h"

#include <ATen/ATen.h>
#include <doctest/doctest.h>

#include <random>

#include "base/error.h"
#include "tests/support/late_copies.h"

namespace zeroth::offload {
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
      : store_(make_host_store(std::move(link))) {}

  size_t add(int64_t numel, torch::Dtype dtype) override { return store_->add(numel, dtype); }
  void expect(std::vector<Tile> tiles) override { expected = std::move(tiles); }
  TileLease borrow(const Tile& tile, torch::Device device, Access access) override {
    if (tile == broken) throw Error("cannot read tile {}", tile.begin);
    for (const auto& [other, other_access] : held) {
      const bool clash = other.shard == tile.shard && other.begin < tile.end &&
                         tile.begin < other.end &&
                         (access != Access::kRead || other_access != Access::kRead);
      CHECK_FALSE(clash);
    }
    held.emplace_back(tile, access);
    most_held = std::max(most_held, held.size());
    order.push_back(tile);
    const auto inner = std::make_shared<TileLease>(store_->borrow(tile, device, access));
    return TileLease(inner->tensor(), [this, inner, tile, access] {
      held.erase(std::find(held.begin(), held.end(), std::pair(tile, access)));
    });
  }
  bool ready(const Tile& tile) const override { return tile != late; }
  void settle() override {}
  StoreBytes bytes() const override { return store_->bytes(); }

  std::vector<Tile> expected, order;
  std::vector<std::pair<Tile, Access>> held;
  size_t most_held = 0;
  Tile late = {99, 0, 0}, broken = {99, 0, 0};

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

std::vector<Tile> tiles_of(size_t shard, int64_t numel, int64_t size) {
  std::vector<Tile> tiles;
  for (int64_t begin = 0; begin < numel; begin += size) {
    tiles.push_back({shard, begin, std::min(begin + size, numel)});
  }
  return tiles;
}

}  // namespace

TEST_CASE("states stream through the device, tile by tile, as if they were there") {
  for (const uint64_t seed : {0, 1, 2, 3, 4}) {
    Staged staged({.depth = 3}, seed);
    constexpr int64_t kNumel = 1000;
    for (int shard = 0; shard < 2; ++shard) staged.store->add(kNumel, torch::kFloat);
    torch::Tensor first = torch::zeros({kNumel}), second = torch::zeros({kNumel});
    for (int step = 1; step <= 4; ++step) {
      std::vector<Tile> order;
      for (const Tile& tile : tiles_of(0, kNumel, 150)) {
        order.push_back(tile);
        order.push_back({1, tile.begin, tile.end});
      }
      staged.store->expect(order);
      CHECK((staged.watched->expected == order));
      for (size_t i = 0; i < order.size(); i += 2) {
        const TileLease a = staged.store->borrow(order[i], kFakeDevice, Access::kReadWrite);
        const TileLease b = staged.store->borrow(order[i + 1], kFakeDevice, Access::kReadWrite);
        a.tensor().add_(step);
        b.tensor().mul_(0.5).add_(a.tensor());
      }
      first.add_(step);
      second.mul_(0.5).add_(first);
    }
    staged.store->settle();
    CHECK(staged.watched->held.empty());
    CHECK(at::equal(staged.store->borrow({0, 0, kNumel}, kHost, Access::kRead).tensor(), first));
    CHECK(at::equal(staged.store->borrow({1, 0, kNumel}, kHost, Access::kRead).tensor(), second));
  }
}

TEST_CASE("tiles are copied ahead in the expected order, as many as the depth") {
  Staged staged({.depth = 2, .expected = Access::kRead});
  staged.store->add(100, torch::kFloat);
  const std::vector<Tile> tiles = tiles_of(0, 100, 20);
  staged.store->expect(tiles);
  CHECK((staged.watched->order == std::vector<Tile>(tiles.begin(), tiles.begin() + 2)));
  staged.store->borrow(tiles[0], kFakeDevice, Access::kRead);
  CHECK((staged.watched->order == std::vector<Tile>(tiles.begin(), tiles.begin() + 3)));
  staged.store->borrow(tiles[1], kFakeDevice, Access::kRead);
  CHECK(copies_of(*staged.link).copies() == 4);
  // A new list keeps what was copied and is wanted.
  staged.store->expect({tiles[3], tiles[0]});
  CHECK(copies_of(*staged.link).copies() == 5);
  staged.store->borrow(tiles[3], kFakeDevice, Access::kRead);
  CHECK(copies_of(*staged.link).copies() == 5);
}

TEST_CASE("reading ahead stops at a tile that would be waited for") {
  Staged staged({.depth = 4, .expected = Access::kRead});
  staged.store->add(100, torch::kFloat);
  const std::vector<Tile> tiles = tiles_of(0, 100, 20);
  staged.watched->late = tiles[1];
  staged.store->expect(tiles);
  CHECK(staged.watched->order.size() == 1);
  staged.watched->late = {99, 0, 0};
  staged.store->borrow(tiles[0], kFakeDevice, Access::kRead);
  CHECK(staged.watched->order.size() == 5);
}

TEST_CASE("what the host writes is what the device reads, also if it was copied ahead before") {
  for (const uint64_t seed : {0, 1, 2, 3, 4, 5, 6, 7}) {
    Staged staged({.depth = 3, .expected = Access::kRead}, seed);
    for (int shard = 0; shard < 4; ++shard) staged.store->add(64, torch::kFloat);
    for (int step = 1; step <= 5; ++step) {
      std::vector<Tile> reads;
      for (size_t shard = 0; shard < 4; ++shard) reads.push_back({shard, 0, 64});
      for (size_t shard = 0; shard < 4; ++shard) reads.push_back({3 - shard, 0, 64});
      staged.store->expect(reads);
      for (const Tile& tile : reads) {
        const bool forward = &tile - reads.data() < 4;
        if (forward) {  // an update just before the first use
          staged.store->borrow(tile, kHost, Access::kWrite)
              .tensor()
              .fill_(static_cast<double>(10 * tile.shard) + step);
        }
        const TileLease lease = staged.store->borrow(tile, kFakeDevice, Access::kRead);
        CHECK(at::equal(lease.tensor(),
                        torch::full({64}, static_cast<double>(10 * tile.shard) + step)));
      }
    }
    staged.store->settle();
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
        const Tile tile = {shard, 0, 64};
        TileLease lease = staged.store->borrow(tile, kFakeDevice, Access::kReadWrite);
        const void* memory = lease.tensor().data_ptr();
        lease.tensor().add_(step == 1 ? 100.0 * static_cast<double>(shard) + 1 : step);
        lease = TileLease();
        const int copied = copies.copies(), waited = copies.waits();
        lease = staged.store->borrow(tile, kFakeDevice, Access::kRead);
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
      const TileLease lease = staged.store->borrow({shard, 0, 64}, kHost, Access::kRead);
      CHECK(at::equal(lease.tensor(), sum_of(shard, 3)));
    }
    CHECK(staged.watched->held.empty());
  }
}

TEST_CASE("what the device wrote is not read from its memory once something else was lent") {
  Staged staged({.depth = 1, .expected = Access::kRead});
  staged.store->add(64, torch::kFloat);
  const Tile tile = {0, 0, 64};
  staged.store->borrow(tile, kFakeDevice, Access::kWrite).tensor().fill_(1);
  staged.store->borrow(tile, kHost, Access::kReadWrite).tensor().add_(1);
  CHECK(staged.store->borrow(tile, kFakeDevice, Access::kRead).tensor()[63].item<float>() == 2);
  staged.store->borrow(tile, kFakeDevice, Access::kWrite).tensor().fill_(3);
  staged.store->borrow({0, 0, 32}, kFakeDevice, Access::kReadWrite).tensor().fill_(4);
  const TileLease lease = staged.store->borrow(tile, kFakeDevice, Access::kRead);
  CHECK(at::equal(lease.tensor(), at::cat({torch::full({32}, 4.0), torch::full({32}, 3.0)})));
  CHECK(staged.store->bytes().host - staged.watched->bytes().host == 64 * 4);  // one at a time
}

TEST_CASE("a tile cut otherwise, or read ahead and then written on the device, is up to date") {
  Staged staged({.depth = 2, .expected = Access::kRead});
  staged.store->add(100, torch::kFloat);
  staged.store->expect({{0, 0, 100}});
  staged.store->borrow({0, 50, 100}, kHost, Access::kReadWrite).tensor().fill_(1);
  staged.store->borrow({0, 0, 50}, kFakeDevice, Access::kReadWrite).tensor().fill_(2);
  const TileLease lease = staged.store->borrow({0, 0, 100}, kFakeDevice, Access::kRead);
  CHECK(at::equal(lease.tensor(), at::cat({torch::full({50}, 2.0), torch::full({50}, 1.0)})));
}

TEST_CASE("a tile that the host reads twice is not copied ahead to be written while one reads") {
  Staged staged({.depth = 1, .expected = Access::kReadWrite});
  staged.store->add(100, torch::kFloat);
  const Tile tile = {0, 0, 100};
  TileLease first = staged.store->borrow(tile, kHost, Access::kRead);
  TileLease second = staged.store->borrow(tile, kHost, Access::kRead);
  staged.store->expect({tile});
  first = TileLease();
  CHECK(staged.watched->held.size() == 1);
  second = TileLease();
  REQUIRE(staged.watched->held.size() == 1);
  CHECK(staged.watched->held.front().second == Access::kReadWrite);
}

TEST_CASE("only reading on the device leaves what rests as it is") {
  for (const Access expected : {Access::kRead, Access::kReadWrite}) {
    Staged staged({.depth = 2, .expected = expected});
    staged.store->add(10, torch::kFloat);
    staged.store->expect({{0, 0, 10}});
    staged.store->borrow({0, 0, 10}, kFakeDevice, Access::kRead).tensor().fill_(9);
    staged.store->settle();
    CHECK(staged.watched->held.empty());
    CHECK(staged.store->borrow({0, 0, 10}, kHost, Access::kRead).tensor().sum().item<float>() == 0);
  }
}

TEST_CASE("no more tiles of the inner store are borrowed than it may lend") {
  for (const uint64_t seed : {0, 1, 2}) {
    Staged staged({.depth = 8, .inner_leases = 3}, seed);
    staged.store->add(1000, torch::kFloat);
    for (int step = 0; step < 2; ++step) {
      const std::vector<Tile> tiles = tiles_of(0, 1000, 50);
      staged.store->expect(tiles);
      for (const Tile& tile : tiles) {
        const TileLease one = staged.store->borrow(tile, kFakeDevice, Access::kReadWrite);
        one.tensor().add_(1);
      }
    }
    staged.store->settle();
    CHECK(staged.watched->most_held <= 3);
    CHECK(at::equal(staged.store->borrow({0, 0, 1000}, kHost, Access::kRead).tensor(),
                    torch::full({1000}, 2.0)));
  }
}

TEST_CASE("a tile that cannot be read ahead is the next borrow's error") {
  Staged staged({.depth = 2});
  staged.store->add(100, torch::kFloat);
  staged.watched->broken = {0, 50, 100};
  staged.store->expect({{0, 0, 50}, {0, 50, 100}});
  CHECK_THROWS_WITH_AS(staged.store->borrow({0, 0, 50}, kFakeDevice, Access::kReadWrite),
                       "cannot read tile 50", Error);
}

TEST_CASE("what is borrowed ahead is ordered where it is used, and no earlier") {
  for (const auto expected : {Access::kRead, Access::kReadWrite}) {
    Staged staged({.depth = 1, .expected = expected});
    for (int shard = 0; shard < 2; ++shard) staged.store->add(64, torch::kFloat);
    for (const size_t shard : {0, 1}) {
      staged.store->borrow({shard, 0, 64}, kHost, Access::kWrite)
          .tensor()
          .fill_(static_cast<double>(shard) + 1);
    }
    const LateCopies& copies = copies_of(*staged.link);
    TileLease next = staged.store->borrow_ahead({1, 0, 64}, kFakeDevice);
    CHECK(copies.under_way() == 1);
    const TileLease now = staged.store->borrow({0, 0, 64}, kFakeDevice, Access::kRead);
    CHECK(at::equal(now.tensor(), torch::ones({64})));
    CHECK(copies.under_way() == 1);
    next.order();
    CHECK(copies.under_way() == 0);
    CHECK(at::equal(next.tensor(), torch::full({64}, 2.0)));
  }
}

TEST_CASE("memory of a tile that was borrowed ahead and never used is free behind its copy") {
  for (const uint64_t seed : {0, 1, 2, 3}) {
    Staged staged({.depth = 1, .expected = Access::kRead}, seed);
    for (int shard = 0; shard < 4; ++shard) staged.store->add(64, torch::kFloat);
    for (size_t shard = 0; shard < 4; ++shard) {
      staged.store->borrow({shard, 0, 64}, kHost, Access::kWrite)
          .tensor()
          .fill_(static_cast<double>(shard));
    }
    for (size_t shard = 0; shard < 3; ++shard) {
      staged.store->borrow_ahead({shard, 0, 64}, kFakeDevice);
      const TileLease lease = staged.store->borrow({shard + 1, 0, 64}, kFakeDevice, Access::kRead);
      CHECK(at::equal(lease.tensor(), torch::full({64}, static_cast<double>(shard) + 1)));
    }
    staged.store->settle();
    CHECK(staged.watched->held.empty());
  }
}

TEST_CASE("device memory stays at what is leased and copied ahead") {
  Staged staged({.depth = 2});
  staged.store->add(1000, torch::kFloat);
  const std::vector<Tile> tiles = tiles_of(0, 1000, 100);
  for (int step = 0; step < 3; ++step) {
    staged.store->expect(tiles);
    for (const Tile& tile : tiles) {
      staged.store->borrow(tile, kFakeDevice, Access::kReadWrite).tensor().add_(1);
    }
  }
  CHECK(staged.store->bytes().host - staged.watched->bytes().host <= 3 * 400);
}

}  // namespace zeroth::offload
