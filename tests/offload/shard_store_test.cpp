#include "offload/shard_store.h"

#include <ATen/ATen.h>
#include <doctest/doctest.h>

#include <algorithm>
#include <vector>

#include "base/error.h"
#include "offload/file_store.h"
#include "offload/staging_store.h"
#include "tests/support/late_copies.h"
#include "tests/support/temp_folder.h"

namespace zeroth::offload {
namespace {

constexpr int64_t kTile = 2 * kTileGrid;
constexpr int64_t kShard = 9 * kTileGrid + 100;  // the last tile is short

// One suite over every resting place.
struct MemoryPlace {
  std::unique_ptr<ShardStore> store = make_memory_store(torch::kCPU);
};

struct FilePlace {
  TempFolder folder;
  std::unique_ptr<ShardStore> store = make_file_store(
      {.place = {folder.path(), "test", 0}, .aio = {}, .buffers = 3, .buffer_bytes = kTile * 4});
};

struct HostPlace {
  std::unique_ptr<ShardStore> store = make_host_store(testing::late_link());
};

// Whatever device is asked for, it is lent to the fake one, through copies.
class OnFakeDevice final : public ShardStore {
 public:
  explicit OnFakeDevice(std::unique_ptr<ShardStore> store) : store_(std::move(store)) {}
  size_t add(int64_t numel, torch::Dtype dtype) override { return store_->add(numel, dtype); }
  void expect(std::vector<Tile> tiles) override { store_->expect(std::move(tiles)); }
  TileLease borrow(const Tile& tile, torch::Device, Access access) override {
    return store_->borrow(tile, testing::kFakeDevice, access);
  }
  void settle() override { store_->settle(); }
  StoreBytes bytes() const override { return store_->bytes(); }

 private:
  std::unique_ptr<ShardStore> store_;
};

struct StagedFilePlace {
  TempFolder folder;
  std::unique_ptr<ShardStore> store = std::make_unique<OnFakeDevice>(make_staging_store(
      make_file_store({.place = {folder.path(), "test", 0},
                       .aio = {},
                       .buffers = 4,
                       .buffer_bytes = kTile * 4}),
      testing::late_link(1), testing::kFakeDevice, {.depth = 1, .inner_leases = 3}));
};

std::vector<Tile> tiles_of(size_t shard, int64_t numel) {
  std::vector<Tile> tiles;
  for (int64_t begin = 0; begin < numel; begin += kTile) {
    tiles.push_back({shard, begin, std::min(begin + kTile, numel)});
  }
  return tiles;
}

TileLease borrow(ShardStore& store, const Tile& tile, Access access) {
  return store.borrow(tile, torch::kCPU, access);
}

// What element i of a shard becomes in round `round`.
torch::Tensor values(const Tile& tile, int64_t round, torch::Dtype dtype) {
  const auto i = torch::arange(tile.begin, tile.end, torch::kLong);
  return (i * 7 + static_cast<int64_t>(tile.shard) * 31 + round * 13).remainder(251).to(dtype);
}

}  // namespace

TEST_CASE_TEMPLATE("a new shard holds zeros", Place, MemoryPlace, HostPlace, FilePlace,
                   StagedFilePlace) {
  Place place;
  CHECK(place.store->add(10) == 0);
  CHECK(place.store->add(kShard) == 1);
  for (const Tile& tile : tiles_of(1, kShard)) {
    const TileLease lease = borrow(*place.store, tile, Access::kRead);
    CHECK(at::equal(lease.tensor(), torch::zeros({tile.end - tile.begin})));
  }
}

TEST_CASE_TEMPLATE("what is written through a lease is read through the next, tile by tile", Place,
                   MemoryPlace, HostPlace, FilePlace, StagedFilePlace) {
  Place place;
  const std::vector<torch::Dtype> dtypes = {torch::kFloat, torch::kBFloat16, torch::kHalf,
                                            torch::kFloat};
  std::vector<Tile> order;
  for (size_t shard = 0; shard < dtypes.size(); ++shard) {
    place.store->add(kShard, dtypes[shard]);
    for (const Tile& tile : tiles_of(shard, kShard)) order.push_back(tile);
  }
  for (int64_t round = 0; round < 3; ++round) {
    place.store->expect(order);
    for (const Tile& tile : order) {
      const torch::Dtype dtype = dtypes[tile.shard];
      const TileLease lease = borrow(*place.store, tile, Access::kReadWrite);
      REQUIRE((lease.tensor().scalar_type() == dtype));
      const auto before =
          round == 0 ? torch::zeros_like(lease.tensor()) : values(tile, round - 1, dtype);
      CHECK(at::equal(lease.tensor(), before));
      lease.tensor().copy_(values(tile, round, dtype));
    }
    std::reverse(order.begin(), order.end());
  }
  place.store->settle();
  for (const Tile& tile : order) {
    const TileLease lease = borrow(*place.store, tile, Access::kRead);
    CHECK(at::equal(lease.tensor(), values(tile, 2, dtypes[tile.shard])));
  }
}

TEST_CASE_TEMPLATE("a lease to write needs nothing of what was there, and many may read a tile",
                   Place, MemoryPlace, HostPlace, FilePlace, StagedFilePlace) {
  Place place;
  place.store->add(kShard);
  for (int64_t round = 0; round < 2; ++round) {
    for (const Tile& tile : tiles_of(0, kShard)) {
      borrow(*place.store, tile, Access::kWrite).tensor().copy_(values(tile, round, torch::kFloat));
    }
  }
  const Tile tile = {0, kTile, 2 * kTile};
  const TileLease one = borrow(*place.store, tile, Access::kRead);
  const TileLease two = borrow(*place.store, tile, Access::kRead);
  CHECK(at::equal(one.tensor(), values(tile, 1, torch::kFloat)));
  CHECK(at::equal(one.tensor(), two.tensor()));
}

TEST_CASE_TEMPLATE("an empty shard and an empty tile are lent as empty tensors", Place, MemoryPlace,
                   HostPlace, FilePlace, StagedFilePlace) {
  Place place;
  place.store->add(0, torch::kBFloat16);
  place.store->expect({{0, 0, 0}});
  const TileLease lease = borrow(*place.store, {0, 0, 0}, Access::kReadWrite);
  CHECK(lease.tensor().numel() == 0);
  CHECK((lease.tensor().scalar_type() == torch::kBFloat16));
  place.store->settle();
}

TEST_CASE_TEMPLATE("tiles outside a shard and unknown shards are broken invariants", Place,
                   MemoryPlace, HostPlace, FilePlace, StagedFilePlace) {
  Place place;
  place.store->add(10);
  CHECK_THROWS_AS(borrow(*place.store, {0, 5, 11}, Access::kRead), InternalError);
  CHECK_THROWS_AS(borrow(*place.store, {1, 0, 1}, Access::kRead), InternalError);
}

TEST_CASE("bytes in plain memory are those of the elements") {
  MemoryPlace place;
  place.store->add(10);
  place.store->add(20, torch::kBFloat16);
  CHECK(place.store->bytes().host == 80);
  CHECK(place.store->bytes().file == 0);
}

TEST_CASE("a shard is there to read where it rests in plain memory of the CPU, and nowhere else") {
  for (const auto& store : {MemoryPlace().store.release(), HostPlace().store.release()}) {
    const std::unique_ptr<ShardStore> owner(store);
    const size_t shard = store->add(kShard, torch::kFloat);
    store->borrow({shard, 0, kShard}, torch::kCPU, Access::kWrite).tensor().fill_(3);
    const torch::Tensor held = store->in_place(shard);
    CHECK(held.numel() == kShard);
    CHECK(held.eq(3).all().item<bool>());
    store->borrow({shard, kTile, kShard}, torch::kCPU, Access::kReadWrite).tensor().fill_(4);
    CHECK(held.eq(4).sum().item<int64_t>() == kShard - kTile);
  }
  const FilePlace file;
  CHECK_FALSE(file.store->in_place(file.store->add(kShard, torch::kFloat)).defined());
  const auto staged =
      make_staging_store(make_host_store(nullptr), testing::late_link(), testing::kFakeDevice);
  CHECK_FALSE(staged->in_place(staged->add(kShard, torch::kFloat)).defined());
}

}  // namespace zeroth::offload
