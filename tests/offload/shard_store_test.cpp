#include "offload/shard_store.h"

#include <ATen/ops/equal.h>
#include <doctest/doctest.h>

#include <algorithm>
#include <vector>

#include "base/error.h"
#include "offload/file_store.h"
#include "tests/support/late_copies.h"
#include "tests/support/temp_folder.h"

namespace zeroth::offload::shard_store_test {
namespace {

constexpr int64_t kChunk = 2 * kChunkAlignment;
constexpr int64_t kShard = 9 * kChunkAlignment + 100;  // the last tile is short

// One suite over every resting place.
struct MemoryPlace {
  std::unique_ptr<ShardStore> store = make_memory_store(torch::kCPU);
};

struct FilePlace {
  TempFolder directory;
  std::unique_ptr<ShardStore> store = make_file_store({.place = {directory.path(), "test", 0},
                                                       .aio = {},
                                                       .buffers = 3,
                                                       .buffer_bytes = kChunk * 4});
};

struct HostPlace {
  std::unique_ptr<ShardStore> store = make_cpu_store(testing::late_link());
};

// Whatever device is asked for, it is lent to the fake one, through copies.
class OnFakeDevice final : public ShardStore {
 public:
  explicit OnFakeDevice(std::unique_ptr<ShardStore> store) : store_(std::move(store)) {}
  size_t add(int64_t numel, torch::Dtype dtype) override { return store_->add(numel, dtype); }
  void prefetch(std::vector<ShardChunk> chunks) override { store_->prefetch(std::move(chunks)); }
  ChunkLease acquire(const ShardChunk& chunk, torch::Device, Access access) override {
    return store_->acquire(chunk, testing::kFakeDevice, access);
  }
  void flush() override { store_->flush(); }
  StoreBytes bytes() const override { return store_->bytes(); }

 private:
  std::unique_ptr<ShardStore> store_;
};

struct StagedFilePlace {
  TempFolder directory;
  std::unique_ptr<ShardStore> store = std::make_unique<OnFakeDevice>(make_staging_store(
      make_file_store({.place = {directory.path(), "test", 0},
                       .aio = {},
                       .buffers = 4,
                       .buffer_bytes = kChunk * 4}),
      testing::late_link(1), testing::kFakeDevice, {.depth = 1, .inner_leases = 3}));
};

std::vector<ShardChunk> chunks_of(size_t shard, int64_t numel) {
  std::vector<ShardChunk> chunks;
  for (int64_t begin = 0; begin < numel; begin += kChunk) {
    chunks.push_back({shard, begin, std::min(begin + kChunk, numel)});
  }
  return chunks;
}

ChunkLease acquire(ShardStore& store, const ShardChunk& chunk, Access access) {
  return store.acquire(chunk, torch::kCPU, access);
}

// What element i of a shard becomes in round `round`.
torch::Tensor values(const ShardChunk& chunk, int64_t round, torch::Dtype dtype) {
  const auto i = torch::arange(chunk.begin, chunk.end, torch::kLong);
  return (i * 7 + static_cast<int64_t>(chunk.shard) * 31 + round * 13).remainder(251).to(dtype);
}

}  // namespace

TEST_CASE_TEMPLATE("a new shard holds zeros", Place, MemoryPlace, HostPlace, FilePlace,
                   StagedFilePlace) {
  Place place;
  CHECK(place.store->add(10) == 0);
  CHECK(place.store->add(kShard) == 1);
  for (const ShardChunk& chunk : chunks_of(1, kShard)) {
    const ChunkLease lease = acquire(*place.store, chunk, Access::kRead);
    CHECK(at::equal(lease.tensor(), torch::zeros({chunk.end - chunk.begin})));
  }
}

TEST_CASE_TEMPLATE("what is written through a lease is read through the next, tile by tile", Place,
                   MemoryPlace, HostPlace, FilePlace, StagedFilePlace) {
  Place place;
  const std::vector<torch::Dtype> dtypes = {torch::kFloat, torch::kBFloat16, torch::kHalf,
                                            torch::kFloat};
  std::vector<ShardChunk> order;
  for (size_t shard = 0; shard < dtypes.size(); ++shard) {
    place.store->add(kShard, dtypes[shard]);
    for (const ShardChunk& chunk : chunks_of(shard, kShard)) order.push_back(chunk);
  }
  for (int64_t round = 0; round < 3; ++round) {
    place.store->prefetch(order);
    for (const ShardChunk& chunk : order) {
      const torch::Dtype dtype = dtypes[chunk.shard];
      const ChunkLease lease = acquire(*place.store, chunk, Access::kReadWrite);
      REQUIRE((lease.tensor().scalar_type() == dtype));
      const auto before =
          round == 0 ? torch::zeros_like(lease.tensor()) : values(chunk, round - 1, dtype);
      CHECK(at::equal(lease.tensor(), before));
      lease.tensor().copy_(values(chunk, round, dtype));
    }
    std::reverse(order.begin(), order.end());
  }
  place.store->flush();
  for (const ShardChunk& chunk : order) {
    const ChunkLease lease = acquire(*place.store, chunk, Access::kRead);
    CHECK(at::equal(lease.tensor(), values(chunk, 2, dtypes[chunk.shard])));
  }
}

TEST_CASE_TEMPLATE("a lease to write needs nothing of what was there, and many may read a tile",
                   Place, MemoryPlace, HostPlace, FilePlace, StagedFilePlace) {
  Place place;
  place.store->add(kShard);
  for (int64_t round = 0; round < 2; ++round) {
    for (const ShardChunk& chunk : chunks_of(0, kShard)) {
      acquire(*place.store, chunk, Access::kWrite)
          .tensor()
          .copy_(values(chunk, round, torch::kFloat));
    }
  }
  const ShardChunk chunk = {0, kChunk, 2 * kChunk};
  const ChunkLease one = acquire(*place.store, chunk, Access::kRead);
  const ChunkLease two = acquire(*place.store, chunk, Access::kRead);
  CHECK(at::equal(one.tensor(), values(chunk, 1, torch::kFloat)));
  CHECK(at::equal(one.tensor(), two.tensor()));
}

TEST_CASE_TEMPLATE("an empty shard and an empty tile are lent as empty tensors", Place, MemoryPlace,
                   HostPlace, FilePlace, StagedFilePlace) {
  Place place;
  place.store->add(0, torch::kBFloat16);
  place.store->prefetch({{0, 0, 0}});
  const ChunkLease lease = acquire(*place.store, {0, 0, 0}, Access::kReadWrite);
  CHECK(lease.tensor().numel() == 0);
  CHECK((lease.tensor().scalar_type() == torch::kBFloat16));
  place.store->flush();
}

TEST_CASE_TEMPLATE("tiles outside a shard and unknown shards are broken invariants", Place,
                   MemoryPlace, HostPlace, FilePlace, StagedFilePlace) {
  Place place;
  place.store->add(10);
  CHECK_THROWS_AS(acquire(*place.store, {0, 5, 11}, Access::kRead), InternalError);
  CHECK_THROWS_AS(acquire(*place.store, {1, 0, 1}, Access::kRead), InternalError);
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
    store->acquire({shard, 0, kShard}, torch::kCPU, Access::kWrite).tensor().fill_(3);
    const torch::Tensor held = store->in_place(shard);
    CHECK(held.numel() == kShard);
    CHECK(held.eq(3).all().item<bool>());
    store->acquire({shard, kChunk, kShard}, torch::kCPU, Access::kReadWrite).tensor().fill_(4);
    CHECK(held.eq(4).sum().item<int64_t>() == kShard - kChunk);
  }
  const FilePlace file;
  CHECK_FALSE(file.store->in_place(file.store->add(kShard, torch::kFloat)).defined());
  const auto staged =
      make_staging_store(make_cpu_store(nullptr), testing::late_link(), testing::kFakeDevice);
  CHECK_FALSE(staged->in_place(staged->add(kShard, torch::kFloat)).defined());
}

}  // namespace zeroth::offload::shard_store_test
