#include "zero/unit.h"

#include <ATen/ATen.h>
#include <doctest/doctest.h>

#include "base/error.h"
#include "tests/support/chain.h"
#include "tests/zero/split_block.h"

namespace zeroth::zero::unit_test {

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

TEST_CASE("parameters with coded states are a unit of their own, aligned to code blocks") {
  const UnitPlan plan = plan_units(testing::make_chain({.hidden = 24, .frozen = true}), 2,
                                   {.min_coded_elements = 500});
  CHECK_FALSE(plan.units[0].coded);  // 19 x 24
  CHECK(plan.units[0].name == "embedding (small)");
  REQUIRE(plan.block_units[1].size() == 2);
  const Unit &matrix = plan.units[plan.block_units[1][0]],
             &bias = plan.units[plan.block_units[1][1]];
  CHECK(matrix.coded);
  CHECK(matrix.name == "layers.0");
  CHECK(matrix.layout.shard_numel() == 512);
  CHECK_FALSE(bias.coded);
  CHECK(bias.name == "layers.0 (small)");
  CHECK(bias.layout.shard_numel() == 64);
  const Unit& frozen = plan.units[plan.block_units[2][0]];
  CHECK_FALSE(frozen.coded);
  CHECK(frozen.name == "layers.1 (frozen)");
}

TEST_CASE(
    "where nothing trains all of a block is one unit, and none of its parameters is trainable") {
  const UnitPlan trained = plan_units(testing::make_chain({.frozen = true}), 2);
  const UnitPlan plan = plan_units(testing::make_chain({.frozen = true}), 2, {.trains = false});
  CHECK(trained.trains());
  CHECK_FALSE(plan.trains());
  REQUIRE(plan.units.size() == 5);
  CHECK(plan.units[2].name == "layers.1");
  CHECK(plan.units[2].layout.slots().size() == 2);
}

TEST_CASE("parameters of a block are units by which ranks hold the same") {
  using comm::MeshDim;
  const comm::MeshLayout grid(comm::MeshShape::data_parallel(2).with(MeshDim::kTp, 4));
  const int rank = 6;  // data 1, tensor 2
  const model::Blocks blocks = {std::make_shared<SplitBlock>("layer", /*tensor=*/2, /*ranks=*/4)};
  const UnitPlan plan = plan_units(blocks, grid, rank);
  REQUIRE(plan.units.size() == 3);
  const Unit &columns = plan.units[0], &keys = plan.units[1], &norm = plan.units[2];
  CHECK(columns.name == "layer");
  CHECK(columns.layout.num_shards() == 2);
  CHECK(columns.shard_index == 1);  // of ranks 2 and 6
  CHECK(columns.layout.slots()[0].name == "layer.columns");
  CHECK(columns.layout.slots()[0].global.name == "layer.whole_columns");
  CHECK((columns.layout.slots()[0].global.slice.offsets == std::vector<int64_t>{0, 8}));
  CHECK(keys.name == "layer (on 2 ranks)");
  CHECK(keys.layout.num_shards() == 4);
  CHECK(keys.shard_index == 2);  // of ranks 2, 3, 6 and 7
  CHECK((keys.layout.slots()[0].global.slice.offsets == std::vector<int64_t>{6, 0}));
  CHECK(norm.name == "layer (on 4 ranks)");
  CHECK(norm.layout.num_shards() == 8);
  CHECK(norm.shard_index == 6);
  CHECK((norm.layout.slots()[0].global.slice.shape == std::vector<int64_t>{9}));
}

TEST_CASE("where no rank shares layers, what a block says of it counts nothing") {
  const model::Blocks blocks = {std::make_shared<SplitBlock>("layer", /*tensor=*/0, /*ranks=*/1)};
  const UnitPlan plan = plan_units(blocks, 3);
  REQUIRE(plan.units.size() == 1);
  CHECK(plan.units[0].layout.num_shards() == 3);
  CHECK(plan.units[0].layout.slots()[0].global.name == "layer.columns");
}

TEST_CASE("a part that lies beside the whole parameter is refused") {
  const comm::MeshLayout grid(comm::MeshShape().with(comm::MeshDim::kTp, 4));
  const model::Blocks blocks = {std::make_shared<SplitBlock>("layer", /*tensor=*/4, /*ranks=*/4)};
  CHECK_THROWS_WITH_AS(
      plan_units(blocks, grid, 0),
      doctest::Contains(
          "layer.columns of shape [5, 4] at offset [0, 16] is not a slice of [5, 16]"),
      Error);
}

TEST_CASE("a block that does not say how ranks share it is refused by name where they would") {
  const comm::MeshLayout grid(comm::MeshShape().with(comm::MeshDim::kTp, 2));
  CHECK_THROWS_WITH_AS(plan_units(testing::make_chain(), grid, 0),
                       "block embedding does not define how 2 ranks of a tensor-parallel group "
                       "split it (Block::splits). Set tensor_parallel.autotp_size to 1 to train it",
                       Error);
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
  CHECK_THROWS_WITH_AS(plan_units(blocks, 1), "duplicate block label same", Error);
}

TEST_CASE("frozen bytes are a unit of their own, which no checkpoint holds") {
  // A block of two frozen parameters, one of which is bytes.
  struct Quantized : model::Block {
    Quantized() : Block("layers.0") {
      register_parameter("norm", torch::ones({4}), /*requires_grad=*/false);
      register_parameter("codes", torch::zeros({100}, torch::kByte), /*requires_grad=*/false);
      register_parameter("factor", torch::ones({2, 4}));
    }
    torch::Tensor forward(const torch::Tensor& x, const model::MicroBatch&) override { return x; }
  };
  for (const bool saves_frozen : {true, false}) {
    const UnitPlan plan =
        plan_units({std::make_shared<Quantized>()}, 2, {.saves_frozen = saves_frozen});
    REQUIRE(plan.units.size() == 3);
    const Unit& codes = plan.units[1];
    CHECK(codes.name == "layers.0 (quantized)");
    CHECK(codes.is_quantized());
    CHECK_FALSE(codes.is_saved);
    CHECK_FALSE(codes.trainable);
    CHECK((codes.dtype(torch::kBFloat16) == torch::kByte));
    CHECK((plan.units[0].dtype(torch::kBFloat16) == torch::kBFloat16));
    CHECK(plan.units[0].is_saved == saves_frozen);
    CHECK(plan.units[2].is_saved);
    CHECK(codes.layout.shard_numel() == 64);
  }
}

TEST_CASE("a frozen parameter that is kept in fp32 is a unit of its own, which is saved") {
  struct Kept : model::Block {
    explicit Kept(bool trainable) : Block("layers.0") {
      register_parameter("weight", torch::ones({4}), /*requires_grad=*/false);
      register_parameter("bias", torch::ones({4}), trainable);
    }
    std::vector<std::string> keep_in_fp32() const override { return {"bias"}; }
    torch::Tensor forward(const torch::Tensor& x, const model::MicroBatch&) override { return x; }
  };
  const UnitPlan plan = plan_units({std::make_shared<Kept>(false)}, 2);
  REQUIRE(plan.units.size() == 2);
  const Unit& kept = plan.units[1];
  CHECK(kept.name == "layers.0 (fp32)");
  CHECK((kept.dtype(torch::kBFloat16) == torch::kFloat));
  CHECK((plan.units[0].dtype(torch::kBFloat16) == torch::kBFloat16));
  CHECK(kept.is_saved);
  CHECK_FALSE(kept.is_quantized());
  CHECK_THROWS_WITH_AS(plan_units({std::make_shared<Kept>(true)}, 1),
                       "parameter layers.0.bias is trainable; only frozen ones are kept in fp32",
                       Error);
}

TEST_CASE("a parameter that is not floating point is refused by name and dtype") {
  const model::Blocks blocks = {std::make_shared<Labelled>(torch::zeros({2}, torch::kLong))};
  CHECK_THROWS_WITH_AS(plan_units(blocks, 1),
                       "parameter same.weight has dtype Long, only floating point can be trained",
                       Error);
}

}  // namespace zeroth::zero::unit_test
