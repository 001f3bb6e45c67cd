#include "zero/optimizer_states.h"

#include <ATen/ATen.h>
#include <doctest/doctest.h>

#include <memory>
#include <string>
#include <vector>

#include "optim/update_rule.h"
#include "tests/support/chain.h"
#include "tests/support/ranks.h"
#include "tests/zero/fake_store.h"
#include "zero/param_store.h"
#include "zero/unit.h"

namespace zeroth::zero::optimizer_states_test {
namespace {

constexpr int64_t kTile = 64;

// The states of a chain in bf16 whose first block is frozen, in a store of their own.
struct Fixture {
  explicit Fixture(const comm::DeviceMesh& mesh)
      : plan(plan_units(blocks, mesh)),
        params(plan, mesh, torch::kCPU, {.dtype = torch::kBFloat16}),
        states(plan, params, std::vector(plan.units.size(), OptimizerPlacement{&store, rule.get()}),
               {.tile_elements = kTile}) {}

  torch::Tensor read(size_t unit, size_t index) {
    std::vector<torch::Tensor> tiles;
    for (const Range& tile : states.tiles(unit)) {
      tiles.push_back(states.read(unit, index, tile).tensor().clone());
    }
    return at::cat(tiles);
  }

  model::Blocks blocks = testing::make_chain({.frozen = true});
  UnitPlan plan;
  std::unique_ptr<optim::UpdateRule> rule = optim::make_update_rule({}, torch::kCPU);
  FakeStore store;
  ParamStore params;
  OptimizerStates states;
};

}  // namespace

TEST_CASE("every array has a name and a dtype, and tiles cover it in order") {
  testing::run_ranks(1, [](std::shared_ptr<comm::DeviceMesh> mesh) {
    Fixture fixture(*mesh);
    for (size_t unit = 0; unit < fixture.plan.units.size(); ++unit) {
      const bool trainable = fixture.plan.units[unit].trainable;
      std::vector<std::string> names;
      for (const OptimizerStates::Array& array : fixture.states.arrays(unit)) {
        names.push_back(array.name);
        CHECK((array.dtype == (trainable ? torch::kFloat : torch::kBFloat16)));
      }
      CHECK(names == (trainable ? std::vector<std::string>{"master", "exp_avg", "exp_avg_sq"}
                                : std::vector<std::string>{"weight"}));
      int64_t end = 0;
      for (const Range& tile : fixture.states.tiles(unit)) {
        CHECK(tile.begin == end);
        if (trainable) CHECK(tile.size() <= kTile);
        end = tile.end;
      }
      CHECK(end == fixture.params.range(unit).size());
    }
  });
}

TEST_CASE("what is written is read back, and the first array is rounded into the weights") {
  testing::run_ranks(1, [](std::shared_ptr<comm::DeviceMesh> mesh) {
    Fixture fixture(*mesh);
    for (size_t unit = 0; unit < fixture.plan.units.size(); ++unit) {
      const int64_t numel = fixture.params.range(unit).size();
      const torch::Tensor values = torch::arange(numel, torch::kFloat) / 7;
      const std::vector<OptimizerStates::Array> arrays = fixture.states.arrays(unit);
      for (size_t i = 0; i < arrays.size(); ++i) {
        fixture.states.write(unit, i, values + static_cast<double>(i));
      }
      for (size_t i = 0; i < arrays.size(); ++i) {
        const torch::Tensor written = (values + static_cast<double>(i)).to(arrays[i].dtype);
        CHECK(at::equal(fixture.read(unit, i), written));
      }
      const offload::ChunkLease weights =
          fixture.params.acquire_shard(unit, torch::kCPU, offload::Access::kRead);
      CHECK(at::equal(weights.tensor(), values.to(torch::kBFloat16)));
    }
  });
}

TEST_CASE("only memory that other threads can read is in place") {
  testing::run_ranks(1, [](std::shared_ptr<comm::DeviceMesh> mesh) {
    Fixture fixture(*mesh);
    for (size_t unit = 0; unit < fixture.plan.units.size(); ++unit) {
      // The fake store does not hand out its memory; frozen weights are the parameters themselves.
      const torch::Tensor array = fixture.states.in_place(unit, 0);
      CHECK(array.defined() != fixture.plan.units[unit].trainable);
    }
  });
}

}  // namespace zeroth::zero::optimizer_states_test
