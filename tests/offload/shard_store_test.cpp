#include "offload/shard_store.h"

#include <ATen/ATen.h>
#include <doctest/doctest.h>

#include "base/error.h"

namespace zeroth::offload {
namespace {

// One suite over every resting place.
struct MemoryPlace {
  static std::unique_ptr<ShardStore> make() { return make_memory_store(torch::kCPU); }
};

}  // namespace

TEST_CASE_TEMPLATE("a new shard holds zeros", Place, MemoryPlace) {
  const auto store = Place::make();
  CHECK(store->add(10) == 0);
  CHECK(store->add(20) == 1);
  const TileLease lease = store->borrow({1, 0, 20}, torch::kCPU, Access::kRead);
  CHECK(at::equal(lease.tensor(), torch::zeros({20})));
  CHECK(store->bytes().host == 30 * 4);
}

TEST_CASE_TEMPLATE("what is written through a lease is read through the next, tile by tile", Place,
                   MemoryPlace) {
  const auto store = Place::make();
  store->add(100);
  for (int64_t begin = 0; begin < 100; begin += 30) {
    const int64_t end = std::min<int64_t>(begin + 30, 100);
    const TileLease lease = store->borrow({0, begin, end}, torch::kCPU, Access::kReadWrite);
    lease.tensor().copy_(torch::arange(begin, end, torch::kFloat));
  }
  const TileLease all = store->borrow({0, 0, 100}, torch::kCPU, Access::kRead);
  CHECK(at::equal(all.tensor(), torch::arange(0, 100, torch::kFloat)));
}

TEST_CASE_TEMPLATE("tiles outside a shard and unknown shards are broken invariants", Place,
                   MemoryPlace) {
  const auto store = Place::make();
  store->add(10);
  CHECK_THROWS_AS(store->borrow({0, 5, 11}, torch::kCPU, Access::kRead), InternalError);
  CHECK_THROWS_AS(store->borrow({1, 0, 1}, torch::kCPU, Access::kRead), InternalError);
}

}  // namespace zeroth::offload
