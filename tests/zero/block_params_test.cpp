#include "zero/block_params.h"

#include <ATen/ATen.h>
#include <doctest/doctest.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "base/error.h"
#include "tests/support/chain.h"
#include "tests/support/ranks.h"
#include "tests/zero/fake_store.h"

namespace zeroth::zero::block_params_test {
namespace {

UnitPlan chain_units(const model::Blocks& blocks, const comm::DeviceMesh& mesh,
                     GatherPolicy gather_policy) {
  UnitPlan plan = plan_units(blocks, mesh);
  for (Unit& unit : plan.units) unit.gather_policy = gather_policy;
  return plan;
}

const std::vector<size_t> kStep = {0, 1, 2, 3, 4, 4, 3, 2, 1, 0};

// The chain's parameters in bf16, all ones at first; an update halves them.
struct Chain {
  Chain(comm::DeviceMesh& mesh, GatherPolicy gather_policy, const BlockParams::Options& options,
        std::vector<offload::ShardStore*> param_stores = {})
      : plan(chain_units(blocks, mesh, gather_policy)),
        store(plan, mesh, torch::kCPU,
              {.dtype = torch::kBFloat16, .shard_stores = std::move(param_stores)}),
        grads(gather_policy == GatherPolicy::kNever
                  ? make_grad_reducer(ReducerKind::kFull, plan, mesh, {})
                  : make_grad_reducer(ReducerKind::kScatter, plan, mesh, {})),
        optimizer(plan, store, *grads,
                  std::vector(plan.units.size(), OptimizerPlacement{&states, rule.get()}), {}),
        params(plan, store, optimizer, options) {
    for (size_t unit = 0; unit < plan.units.size(); ++unit) {
      optimizer.states().write(unit, 0, torch::ones({store.range(unit).size()}));
    }
  }
  void update() {
    const std::vector<size_t> order = testing::backward_order(blocks.size(), 1);
    grads->set_backward_order(order);
    for (const size_t block : order) {
      grads->open(block);
      grads->add(block);
    }
    (void)grads->finish();  // zeros
    params.step(optim::default_step(config, ++updates));
  }
  bool holds(size_t block, double value) const {
    for (const size_t unit : plan.block_units[block]) {
      for (const torch::Tensor& param : plan.units[unit].params) {
        if (!param.detach().eq(value).all().item<bool>()) return false;
      }
    }
    return true;
  }

  configs::OptimizerConfig config = {.lr = 0.5, .weight_decay = 1};
  model::Blocks blocks = testing::make_chain();
  UnitPlan plan;
  std::unique_ptr<optim::UpdateRule> rule = optim::make_update_rule(config, torch::kCPU);
  FakeStore states;
  ParamStore store;
  std::unique_ptr<GradReducer> grads;
  ShardedOptimizer optimizer;
  BlockParams params;
  int64_t updates = 0;
};

std::vector<size_t> shards_of(const std::vector<offload::ShardChunk>& tiles) {
  std::vector<size_t> shards;
  for (const offload::ShardChunk& tile : tiles) shards.push_back(tile.shard);
  return shards;
}

}  // namespace

TEST_CASE("every retention gives whole, updated parameters on every rank") {
  for (const int ranks : {1, 2, 3}) {
    for (const GatherPolicy gather_policy :
         {GatherPolicy::kNever, GatherPolicy::kAfterUpdate, GatherPolicy::kBeforeUse}) {
      for (const int64_t prefetch : {0, 40, 100000}) {
        for (const bool before_use : {false, true}) {
          CAPTURE(ranks);
          CAPTURE(prefetch);
          CAPTURE(before_use);
          testing::run_ranks(ranks, [&](std::shared_ptr<comm::DeviceMesh> mesh) {
            Chain chain(
                *mesh, gather_policy,
                {.limits = {.prefetch_elements = prefetch}, .update_before_use = before_use});
            for (const double value : {1.0, 0.5, 0.25}) {
              chain.params.set_access_order(kStep);
              for (const size_t block : kStep) {
                const Lease lease = chain.params.gather(block);
                CHECK(chain.holds(block, value));
              }
              chain.params.set_access_order({});
              chain.update();
            }
          });
        }
      }
    }
  }
}

TEST_CASE("prefetch takes at least one block and never more than the live limit") {
  testing::run_ranks(2, [](std::shared_ptr<comm::DeviceMesh> mesh) {
    Chain small(*mesh, GatherPolicy::kBeforeUse, {.limits = {.prefetch_elements = 1}});
    small.params.set_access_order(kStep);
    const Lease first = small.params.gather(0);
    const auto numel = [&](size_t unit) { return small.plan.units[unit].layout.numel(); };
    CHECK(small.store.buffers().live_elements() == numel(0) + numel(1));

    const int64_t tight = numel(3) + numel(4);
    Chain limited(*mesh, GatherPolicy::kBeforeUse,
                  {.limits = {.prefetch_elements = 100000, .max_live_elements = tight}});
    limited.params.set_access_order(kStep);
    for (const size_t block : kStep) {
      const Lease lease = limited.params.gather(block);
      CHECK(limited.store.buffers().live_elements() <= tight);
    }
    CHECK(limited.store.buffers().peak_live_elements() == tight);
  });
}

TEST_CASE("a live limit of 0 gathers no block ahead") {
  testing::run_ranks(2, [](std::shared_ptr<comm::DeviceMesh> mesh) {
    Chain chain(*mesh, GatherPolicy::kBeforeUse,
                {.limits = {.prefetch_elements = 100000, .max_live_elements = 0}});
    chain.params.set_access_order(kStep);
    for (const size_t block : kStep) {
      const Lease lease = chain.params.gather(block);
      int64_t own = 0;
      for (const size_t unit : chain.plan.block_units[block]) {
        own += chain.plan.units[unit].layout.numel();
      }
      CHECK(chain.store.buffers().live_elements() == own);
      CHECK(chain.holds(block, 1));
    }
  });
}

TEST_CASE("reads of what rests elsewhere are expected, also where other units rest on the device") {
  testing::run_ranks(2, [](std::shared_ptr<comm::DeviceMesh> mesh) {
    FakeStore elsewhere;
    Chain chain(*mesh, GatherPolicy::kBeforeUse, {},
                {nullptr, &elsewhere, nullptr, &elsewhere, nullptr});
    chain.params.set_access_order(kStep);
    CHECK(shards_of(elsewhere.expected) == std::vector<size_t>{0, 1, 1, 0});
  });
}

TEST_CASE("a share that an update will overwrite is not read ahead before it") {
  for (const int64_t prefetch : {0, 40, 100000}) {
    testing::run_ranks(2, [&](std::shared_ptr<comm::DeviceMesh> mesh) {
      FakeStore elsewhere;
      Chain chain(*mesh, GatherPolicy::kBeforeUse,
                  {.limits = {.prefetch_elements = prefetch}, .update_before_use = true},
                  std::vector<offload::ShardStore*>(5, &elsewhere));
      chain.update();
      // Two states and a master of each unit, in forward order.
      CHECK(chain.states.expected.size() == 15);
      CHECK(std::is_sorted(chain.states.expected.begin(), chain.states.expected.end(),
                           [](const auto& a, const auto& b) { return a.shard < b.shard; }));
      chain.params.set_access_order(kStep);
      const auto waits = [&] {
        return GatherPrefetcher::GatherState{chain.store.present(), chain.optimizer.updates()}
            .has_pending();
      };
      for (const size_t block : kStep) {
        CHECK((!waits() || elsewhere.expected.empty()));
        const Lease lease = chain.params.gather(block);
        CHECK(chain.holds(block, 0.5));
      }
      CHECK_FALSE(waits());
      CHECK_FALSE(elsewhere.expected.empty());  // backward's reads
      CHECK(chain.params.pending_update_seconds() > 0);
    });
  }
}

TEST_CASE("a share that is read has the update that waited for it") {
  testing::run_ranks(1, [](std::shared_ptr<comm::DeviceMesh> mesh) {
    Chain chain(*mesh, GatherPolicy::kBeforeUse, {.update_before_use = true});
    chain.update();
    CHECK(chain.optimizer.updates()[2] == PendingUpdate::kOverwrite);
    CHECK(chain.params.acquire_shard(2).tensor()[0].item<float>() == 0.5F);
    CHECK(chain.optimizer.updates()[2] == PendingUpdate::kNone);
    CHECK(chain.optimizer.updates()[3] == PendingUpdate::kOverwrite);
    chain.params.set_access_order({0, 1});
    CHECK_THROWS_AS((void)chain.params.gather(1), InternalError);
  });
}

}  // namespace zeroth::zero::block_params_test
