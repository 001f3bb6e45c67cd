#include "zero/param_store.h"

#include <ATen/ATen.h>
#include <doctest/doctest.h>

#include <set>
#include <utility>

#include "base/error.h"
#include "tests/support/chain.h"
#include "tests/support/ranks.h"

namespace zeroth::zero {
namespace {

// A store over the chain whose element e of unit u holds u * 1000 + e.
struct Numbered {
  Numbered(comm::Mesh& mesh, Retention retention, int64_t prefetch, int64_t max_live = INT64_MAX,
           std::vector<offload::ShardStore*> rests = {})
      : blocks(testing::make_chain()),
        plan(plan_units(blocks, mesh.world_size())),
        store(plan, mesh.data(), torch::kCPU,
              {.retention = std::vector<Retention>(plan.units.size(), retention),
               .prefetch_elements = prefetch,
               .max_live_elements = max_live,
               .rests = std::move(rests)}) {
    write(0);
  }
  void write(double shift) {
    for (size_t unit = 0; unit < plan.units.size(); ++unit) write(unit, shift);
  }
  void write(size_t unit, double shift) {
    const torch::NoGradGuard no_grad;
    const Range range = store.shard_range(unit);
    store.shard(unit, torch::kCPU, offload::Access::kWrite)
        .tensor()
        .copy_(torch::arange(range.begin, range.end, torch::kFloat) + (unit * 1000 + shift));
    store.updated(unit);
  }
  bool holds(size_t unit, double shift) const {
    for (size_t i = 0; i < plan.units[unit].params.size(); ++i) {
      const Slot& slot = plan.units[unit].layout.slots()[i];
      const torch::Tensor wanted =
          torch::arange(slot.offset, slot.offset + slot.numel, torch::kFloat) +
          (unit * 1000 + shift);
      if (!at::equal(plan.units[unit].params[i].detach().flatten(), wanted)) return false;
    }
    return true;
  }

  model::Blocks blocks;
  UnitPlan plan;
  ParamStore store;
};

// Memory that remembers which tiles it was told to expect.
class Elsewhere final : public offload::ShardStore {
 public:
  size_t add(int64_t numel, torch::Dtype dtype) override { return memory_->add(numel, dtype); }
  void expect(std::vector<offload::Tile> tiles) override { expected = std::move(tiles); }
  offload::TileLease borrow(const offload::Tile& tile, torch::Device device,
                            offload::Access access) override {
    if (std::exchange(fails, false)) throw Error("the test says no");
    return memory_->borrow(tile, device, access);
  }
  void settle() override {}
  offload::StoreBytes bytes() const override { return memory_->bytes(); }

  std::vector<offload::Tile> expected;
  bool fails = false;  // the next borrow

 private:
  std::unique_ptr<offload::ShardStore> memory_ = offload::make_memory_store(torch::kCPU);
};

const std::vector<size_t> kStep = {0, 1, 2, 3, 4, 4, 3, 2, 1, 0};

}  // namespace

TEST_CASE("every retention gives whole, updated parameters on every rank") {
  for (const int ranks : {1, 2, 3}) {
    for (const Retention retention :
         {Retention::kWhole, Retention::kRefresh, Retention::kRelease}) {
      for (const int64_t prefetch : {0, 40, 100000}) {
        CAPTURE(ranks);
        CAPTURE(prefetch);
        testing::run_ranks(ranks, [&](std::shared_ptr<comm::Mesh> mesh) {
          Numbered numbered(*mesh, retention, prefetch);
          for (const double shift : {0.0, 0.5}) {
            numbered.write(shift);
            numbered.store.expect(kStep);
            for (const size_t block : kStep) {
              const Lease lease = numbered.store.gather(block);
              CHECK(numbered.holds(block, shift));
            }
            numbered.store.expect({});
          }
        });
      }
    }
  }
}

TEST_CASE("a released unit has no memory between uses") {
  testing::run_ranks(2, [](std::shared_ptr<comm::Mesh> mesh) {
    Numbered numbered(*mesh, Retention::kRelease, 0);
    CHECK(numbered.store.live_elements() == 0);
    {
      const Lease lease = numbered.store.gather(1);
      CHECK(numbered.store.live_elements() == numbered.plan.units[1].layout.numel());
    }
    numbered.store.expect({});
    CHECK(numbered.store.live_elements() == 0);
    CHECK(numbered.plan.units[1].params[0].storage().data() == nullptr);
  });
}

TEST_CASE("prefetch takes at least one block and never more than the live limit") {
  testing::run_ranks(2, [](std::shared_ptr<comm::Mesh> mesh) {
    Numbered small(*mesh, Retention::kRelease, /*prefetch=*/1);
    small.store.expect(kStep);
    const Lease first = small.store.gather(0);
    const auto numel = [&](size_t unit) { return small.plan.units[unit].layout.numel(); };
    CHECK(small.store.live_elements() == numel(0) + numel(1));

    const int64_t tight = numel(3) + numel(4);
    Numbered limited(*mesh, Retention::kRelease, /*prefetch=*/100000, tight);
    limited.store.expect(kStep);
    CHECK(limited.store.planned_live_elements() == tight);
    for (const size_t block : kStep) {
      const Lease lease = limited.store.gather(block);
      CHECK(limited.store.live_elements() <= tight);
    }
    CHECK(limited.store.peak_live_elements() == tight);
  });
}

TEST_CASE("a live limit of 0 gathers no block ahead") {
  testing::run_ranks(2, [](std::shared_ptr<comm::Mesh> mesh) {
    Numbered store(*mesh, Retention::kRelease, /*prefetch=*/100000, /*max_live=*/0);
    store.store.expect(kStep);
    for (const size_t block : kStep) {
      const Lease lease = store.store.gather(block);
      int64_t own = 0;
      for (const size_t unit : store.plan.block_units[block]) {
        own += store.plan.units[unit].layout.numel();
        CHECK(store.holds(unit, 0));
      }
      CHECK(store.store.live_elements() == own);
    }
  });
}

TEST_CASE("a live limit below two neighbours names the smallest that works") {
  testing::run_ranks(2, [](std::shared_ptr<comm::Mesh> mesh) {
    std::string message;
    try {
      Numbered(*mesh, Retention::kRelease, 0, 10);
    } catch (const Error& error) {
      message = error.what();
    }
    CHECK(message.find("stage3_max_live_parameters is 10") != std::string::npos);
    const std::string number = message.substr(message.rfind(' ') + 1);
    CHECK_NOTHROW(Numbered(*mesh, Retention::kRelease, 0, std::stoll(number)));
    CHECK_THROWS_AS(Numbered(*mesh, Retention::kRelease, 0, std::stoll(number) - 1), Error);
  });
}

TEST_CASE("reads of what rests elsewhere are expected, also where other units rest on the device") {
  testing::run_ranks(2, [](std::shared_ptr<comm::Mesh> mesh) {
    Elsewhere elsewhere;
    Numbered numbered(*mesh, Retention::kRelease, /*prefetch=*/0, INT64_MAX,
                      {nullptr, &elsewhere, nullptr, &elsewhere, nullptr});
    numbered.store.expect(kStep);
    std::vector<size_t> shards;
    for (const offload::Tile& tile : elsewhere.expected) shards.push_back(tile.shard);
    CHECK(shards == std::vector<size_t>{0, 1, 1, 0});
  });
}

TEST_CASE("a gather that failed counts nothing, and can be made again") {
  testing::run_ranks(2, [](std::shared_ptr<comm::Mesh> mesh) {
    Elsewhere elsewhere;
    Numbered numbered(*mesh, Retention::kRelease, /*prefetch=*/0, INT64_MAX,
                      {nullptr, &elsewhere, nullptr, &elsewhere, nullptr});
    elsewhere.fails = true;
    CHECK_THROWS_AS(numbered.store.gather(1), Error);
    CHECK(numbered.store.live_elements() == 0);
    {
      const Lease lease = numbered.store.gather(1);
      CHECK(numbered.holds(1, 0));
    }
    numbered.store.expect({});
    CHECK(numbered.store.live_elements() == 0);
  });
}

TEST_CASE("a shard that an update will overwrite is not read ahead before it") {
  for (const int64_t prefetch : {0, 40, 100000}) {
    testing::run_ranks(2, [&](std::shared_ptr<comm::Mesh> mesh) {
      Elsewhere elsewhere;
      Numbered numbered(*mesh, Retention::kRelease, prefetch, INT64_MAX,
                        std::vector<offload::ShardStore*>(5, &elsewhere));
      std::set<size_t> waiting;
      numbered.store.update_before_use([&](size_t unit) {
        waiting.erase(unit);
        numbered.write(unit, 0.5);
      });
      for (size_t unit = 0; unit < 5; ++unit) {
        waiting.insert(unit);
        numbered.store.will_update(unit, /*reads=*/false);
      }
      numbered.store.expect(kStep);
      for (const size_t block : kStep) {
        CHECK((waiting.empty() || elsewhere.expected.empty()));
        const Lease lease = numbered.store.gather(block);
        CHECK(numbered.holds(block, 0.5));
      }
      CHECK(waiting.empty());
      CHECK_FALSE(elsewhere.expected.empty());  // backward's reads
    });
  }
}

TEST_CASE("a visit out of the expected order is a broken invariant") {
  testing::run_ranks(1, [](std::shared_ptr<comm::Mesh> mesh) {
    Numbered numbered(*mesh, Retention::kWhole, 0);
    numbered.store.expect({0, 1});
    CHECK_THROWS_AS((void)numbered.store.gather(1), InternalError);
  });
}

}  // namespace zeroth::zero
