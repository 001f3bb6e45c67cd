#include "zero/parameter_index.h"

#include <doctest/doctest.h>

#include "engine/memory/memory_estimate.h"
#include "tests/engine/split_chain.h"

namespace zeroth::zero::parameter_index_test {
namespace {

comm::MeshLayout grid_of(int data, int tensor) {
  return comm::MeshLayout(comm::MeshShape::data_parallel(data).with(comm::MeshDim::kTp, tensor));
}

}  // namespace

TEST_CASE("however ranks share a model, its parameters are those of one rank, in its order") {
  const model::Blocks blocks = engine::make_split_chain(0, 1);
  const UnitPlan alone = plan_units(blocks, 1);
  const std::vector<GlobalParameter> expected = global_parameters(alone);
  REQUIRE(expected.size() == 16);
  size_t next = 0;
  for (const Unit& unit : alone.units) {
    for (const Slot& slot : unit.layout.slots()) CHECK(expected[next++].name == slot.name);
  }
  for (const int ranks : {2, 4}) {
    for (int rank = 0; rank < 2 * ranks; ++rank) {
      CAPTURE(ranks);
      CAPTURE(rank);
      const model::Blocks shared = engine::make_split_chain(rank % ranks, ranks);
      const UnitPlan plan = plan_units(shared, grid_of(2, ranks), rank);
      const std::vector<GlobalParameter> parameters = global_parameters(plan);
      REQUIRE(parameters.size() == expected.size());
      for (size_t i = 0; i < expected.size(); ++i) {
        CHECK(parameters[i].name == expected[i].name);
        CHECK(parameters[i].shape == expected[i].shape);
        CHECK(parameters[i].trainable == expected[i].trainable);
        CHECK(parameters[i].block == expected[i].block);
        const bool fused = parameters[i].name.find("qkv") != std::string::npos;
        CHECK(parameters[i].slices.size() == (fused ? 3 : 1));
      }
    }
  }
}

TEST_CASE("what is counted is the whole model, on every rank") {
  const UnitPlan alone = plan_units(engine::make_split_chain(0, 1), 1);
  const UnitPlan shared = plan_units(engine::make_split_chain(1, 4), grid_of(2, 4), 5);
  CHECK(engine::count_parameters(alone) ==
        2 * 19 * 8 + 2 * (8 + 8 * 24 + 24 + 2 * 8 * 8 + 2 * 8 * 12));
  CHECK(engine::count_parameters(shared) == engine::count_parameters(alone));
  configs::OptimizerConfig optimizer;
  optimizer.no_decay = true;
  CHECK(engine::count_decay(shared, optimizer).decayed ==
        engine::count_decay(alone, optimizer).decayed);
  CHECK(engine::count_decay(shared, optimizer).not_decayed == 2 * (8 + 24));
}

}  // namespace zeroth::zero::parameter_index_test
