#include "zero/param_store.h"

#include <ATen/ATen.h>
#include <doctest/doctest.h>

#include "base/error.h"
#include "offload/shard_store.h"
#include "tests/support/chain.h"
#include "tests/support/late_copies.h"
#include "tests/support/ranks.h"
#include "tests/zero/fake_store.h"

namespace zeroth::zero::param_store_test {
namespace {

UnitPlan released_units(const model::Blocks& blocks, const comm::DeviceMesh& mesh) {
  UnitPlan plan = plan_units(blocks, mesh);
  for (Unit& unit : plan.units) unit.gather_policy = GatherPolicy::kBeforeUse;
  return plan;
}

// Only the block's own units.
Lease gather(const UnitPlan& plan, ParamStore& store, size_t block) {
  store.release_all_but(plan.block_units[block]);
  for (const size_t unit : plan.block_units[block]) store.begin_gather(unit);
  return store.lease(block);
}

}  // namespace

TEST_CASE("a released unit has no memory between uses") {
  testing::run_ranks(2, [](std::shared_ptr<comm::DeviceMesh> mesh) {
    const model::Blocks blocks = testing::make_chain();
    const UnitPlan plan = released_units(blocks, *mesh);
    ParamStore store(plan, *mesh, torch::kCPU, {});
    CHECK(store.buffers().live_elements() == 0);
    {
      const Lease lease = gather(plan, store, 1);
      CHECK(store.buffers().live_elements() == plan.units[1].layout.numel());
      CHECK(store.present() == std::vector<bool>{false, true, false, false, false});
      store.release_all_but({});  // not what is leased
      CHECK(store.present()[1]);
    }
    store.release_all_but({});
    CHECK(store.buffers().live_elements() == 0);
    CHECK(plan.units[1].params[0].storage().data() == nullptr);
  });
}

TEST_CASE("a share is gathered whole, from wherever it rests") {
  testing::run_ranks(2, [](std::shared_ptr<comm::DeviceMesh> mesh) {
    const torch::NoGradGuard no_grad;
    const model::Blocks blocks = testing::make_chain();
    const UnitPlan plan = released_units(blocks, *mesh);
    FakeStore elsewhere;
    ParamStore store(plan, *mesh, torch::kCPU,
                     {.shard_stores = {nullptr, &elsewhere, nullptr, &elsewhere, nullptr}});
    for (const size_t unit : {0, 1}) {
      store.acquire_shard(unit, torch::kCPU, offload::Access::kWrite)
          .tensor()
          .fill_(static_cast<double>(mesh->rank() + 1));
      store.mark_updated(unit);
      const Lease lease = gather(plan, store, unit);
      const torch::Tensor& whole = store.buffers().whole(unit);
      const int64_t half = whole.numel() / 2;
      CHECK(whole.narrow(0, 0, half).eq(1).all().item<bool>());
      CHECK(whole.narrow(0, half, half).eq(2).all().item<bool>());
    }
  });
}

TEST_CASE(
    "near ranks gather from each other, and are refreshed from the others once after an update") {
  testing::run_ranks(4, [](std::shared_ptr<comm::DeviceMesh> mesh) {
    const torch::NoGradGuard no_grad;
    const model::Blocks blocks = testing::make_chain();
    const UnitPlan plan = released_units(blocks, *mesh);
    ParamStore store(plan, *mesh, torch::kCPU, {.hpz_partition_size = 2});
    const int64_t shard = store.range(1).size(), width = sizeof(float);
    const auto crossed = [&](const auto& action) {
      const int64_t before = mesh->times().bytes;
      action();
      return mesh->times().bytes - before;
    };
    for (int update = 0; update < 2; ++update) {
      const double first = 10.0 * update;
      store.acquire_shard(1, torch::kCPU, offload::Access::kWrite)
          .tensor()
          .fill_(first + mesh->rank());
      store.mark_updated(1);
      // Two shares across, and all four within the run; then only the latter.
      for (const int64_t shares : {6, 4}) {
        CHECK(crossed([&] {
                const Lease lease = gather(plan, store, 1);
                const torch::Tensor whole = store.buffers().whole(1);
                for (int rank = 0; rank < 4; ++rank) {
                  CHECK(whole.narrow(0, rank * shard, shard).eq(first + rank).all().item<bool>());
                }
              }) == shares * shard * width);
        store.release_all_but({});
      }
    }
  });
}

TEST_CASE("reads are told to every store, in order") {
  testing::run_ranks(1, [](std::shared_ptr<comm::DeviceMesh> mesh) {
    const model::Blocks blocks = testing::make_chain();
    const UnitPlan plan = released_units(blocks, *mesh);
    FakeStore elsewhere;
    const ParamStore store(plan, *mesh, torch::kCPU,
                           {.shard_stores = {nullptr, &elsewhere, nullptr, &elsewhere, nullptr}});
    const offload::Reads reads = store.reads({3, 0, 1});
    REQUIRE(reads.size() == 2);
    const std::vector<offload::ShardChunk>& tiles = reads.at(&elsewhere);
    REQUIRE(tiles.size() == 2);
    CHECK(tiles[0].shard == 1);
    CHECK(tiles[0].end == plan.units[3].owned_range().size());
    CHECK(tiles[1].shard == 0);
    const ParamStore here(plan, *mesh, torch::kCPU, {});
    CHECK(here.reads({3, 0, 1}).empty());
  });
}

TEST_CASE("a gather that failed counts nothing, and can be made again") {
  testing::run_ranks(2, [](std::shared_ptr<comm::DeviceMesh> mesh) {
    const model::Blocks blocks = testing::make_chain();
    const UnitPlan plan = released_units(blocks, *mesh);
    FakeStore elsewhere;
    ParamStore store(plan, *mesh, torch::kCPU,
                     {.shard_stores = {nullptr, &elsewhere, nullptr, &elsewhere, nullptr}});
    elsewhere.fails_in = 0;
    CHECK_THROWS_AS(gather(plan, store, 1), Error);
    CHECK(store.buffers().live_elements() == 0);
    { const Lease lease = gather(plan, store, 1); }
    store.release_all_but({});
    CHECK(store.buffers().live_elements() == 0);
  });
}

TEST_CASE(
    "the use of a unit waits for its copy to the device, that of the one before it does not") {
  testing::run_ranks(1, [](std::shared_ptr<comm::DeviceMesh> mesh) {
    const torch::NoGradGuard no_grad;
    const model::Blocks blocks = testing::make_chain();
    const UnitPlan plan = released_units(blocks, *mesh);
    const auto link = testing::late_link();
    const auto staged = offload::make_staging_store(offload::make_cpu_store(link), link,
                                                    testing::kFakeDevice, {.depth = 1});
    ParamStore store(plan, *mesh, testing::kFakeDevice,
                     {.shard_stores = std::vector(plan.units.size(), staged.get()),
                      .staging = std::make_shared<offload::Staging>(link, testing::kFakeDevice)});
    for (const size_t unit : {1, 2}) {
      store.acquire_shard(unit, torch::kCPU, offload::Access::kWrite)
          .tensor()
          .fill_(static_cast<double>(unit));
      store.mark_updated(unit);
    }
    const testing::LateCopies& copies = testing::copies_of(*link);
    for (const size_t unit : {1, 2}) store.begin_gather(unit);
    CHECK(copies.under_way() == 2);
    for (const size_t unit : {1, 2}) {
      const Lease lease = store.lease(unit);
      CHECK(copies.under_way() == 2 - unit);
      CHECK(store.buffers().whole(unit).eq(static_cast<double>(unit)).all().item<bool>());
    }
  });
}

TEST_CASE("a unit that the host has written on the device is waited for where it is used") {
  testing::run_ranks(1, [](std::shared_ptr<comm::DeviceMesh> mesh) {
    const torch::NoGradGuard no_grad;
    const model::Blocks blocks = testing::make_chain();
    const UnitPlan plan = plan_units(blocks, *mesh);
    const auto link = testing::late_link();
    ParamStore store(plan, *mesh, testing::kFakeDevice,
                     {.staging = std::make_shared<offload::Staging>(link, testing::kFakeDevice)});
    const testing::LateCopies& copies = testing::copies_of(*link);
    for (int step = 0; step < 2; ++step) {
      for (const size_t unit : {1, 2}) {
        store.acquire_shard(unit, torch::kCPU, offload::Access::kWrite)
            .tensor()
            .fill_(static_cast<double>(unit) + step);
        store.mark_updated(unit);
        store.begin_gather(unit);
      }
      CHECK(copies.under_way() == 2);
      for (const size_t unit : {1, 2}) {
        const Lease lease = store.lease(unit);
        CHECK(copies.under_way() == 2 - unit);
        CHECK(store.buffers().whole(unit).eq(static_cast<double>(unit) + step).all().item<bool>());
      }
    }
    // What nobody has used meanwhile is there for who reads the share.
    store.acquire_shard(1, torch::kCPU, offload::Access::kWrite).tensor().fill_(7.0);
    store.mark_updated(1);
    CHECK(store.acquire_shard(1, torch::kCPU, offload::Access::kRead)
              .tensor()
              .eq(7)
              .all()
              .item<bool>());
    CHECK(copies.under_way() == 0);
    store.acquire_shard(1, torch::kCPU, offload::Access::kWrite).tensor().fill_(8.0);
    store.mark_updated(1);
    const auto shard = store.acquire_shard(1, testing::kFakeDevice, offload::Access::kRead);
    CHECK(shard.tensor().eq(8).all().item<bool>());
  });
}

TEST_CASE("a unit that is updated while leased is a broken invariant") {
  testing::run_ranks(1, [](std::shared_ptr<comm::DeviceMesh> mesh) {
    const model::Blocks blocks = testing::make_chain();
    const UnitPlan plan = released_units(blocks, *mesh);
    ParamStore store(plan, *mesh, torch::kCPU, {});
    const Lease lease = gather(plan, store, 1);
    CHECK_THROWS_AS(store.mark_updated(1), InternalError);
  });
}

}  // namespace zeroth::zero::param_store_test
