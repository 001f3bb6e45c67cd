#include "zero/unit.h"

#include <ATen/ATen.h>
#include <doctest/doctest.h>

#include "base/error.h"
#include "tests/support/chain.h"

namespace zeroth::zero {

TEST_CASE("every block is one unit, in order of first use") {
  const UnitPlan plan = plan_units(testing::make_chain(), 2);
  REQUIRE(plan.units.size() == 5);
  CHECK(plan.units[0].name == "embedding");
  CHECK(plan.units[1].name == "layers.0");
  CHECK(plan.units[1].layout.slots()[1].name == "layers.0.bias");
  CHECK((plan.block_units[4] == std::vector<size_t>{4}));
}

TEST_CASE("a tied weight is a unit of its own that two blocks list") {
  const UnitPlan plan = plan_units(testing::make_chain({.tied = true}), 2);
  REQUIRE(plan.units.size() == 4);
  CHECK(plan.units[0].name == "embedding.weight");
  CHECK((plan.units[0].blocks == std::vector<size_t>{0, 4}));
  CHECK((plan.block_units[0] == std::vector<size_t>{0}));
  CHECK((plan.block_units[4] == std::vector<size_t>{0}));
}

TEST_CASE("frozen parameters are a unit of another kind") {
  const UnitPlan plan = plan_units(testing::make_chain({.frozen = true}), 2);
  REQUIRE(plan.units.size() == 6);
  CHECK(plan.block_units[2].size() == 2);
  const Unit& frozen = plan.units[plan.block_units[2][0]];
  CHECK_FALSE(frozen.trainable);
  CHECK(frozen.name == "layers.1 (frozen)");
  CHECK(frozen.layout.slots()[0].name == "layers.1.weight");
}

TEST_CASE(
    "where nothing trains all of a block is one unit, and none of its parameters is trainable") {
  const UnitPlan trained = plan_units(testing::make_chain({.frozen = true}), 2);
  const UnitPlan plan = plan_units(testing::make_chain({.frozen = true}), 2, /*trains=*/false);
  CHECK(trained.trains());
  CHECK_FALSE(plan.trains());
  REQUIRE(plan.units.size() == 5);
  CHECK(plan.units[2].name == "layers.1");
  CHECK(plan.units[2].layout.slots().size() == 2);
}

namespace {
struct Labelled final : model::Block {
  explicit Labelled(torch::Tensor parameter) : Block("same") {
    register_parameter("weight", std::move(parameter), /*requires_grad=*/false);
  }
  torch::Tensor forward(const torch::Tensor& x, const model::MicroBatch&) override { return x; }
};
}  // namespace

TEST_CASE("two blocks of one label are refused by that label") {
  const model::Blocks blocks = {std::make_shared<Labelled>(torch::zeros({2})),
                                std::make_shared<Labelled>(torch::zeros({2}))};
  CHECK_THROWS_WITH_AS(plan_units(blocks, 1), "two blocks are labelled same", Error);
}

TEST_CASE("a parameter that is not floating point is refused by name and dtype") {
  const model::Blocks blocks = {std::make_shared<Labelled>(torch::zeros({2}, torch::kLong))};
  CHECK_THROWS_WITH_AS(plan_units(blocks, 1),
                       "parameter same.weight has dtype Long, only floating point can be trained",
                       Error);
}

}  // namespace zeroth::zero
