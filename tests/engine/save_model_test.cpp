#include "engine/step/save_model.h"

#include <doctest/doctest.h>

#include "tests/engine/split_chain.h"
#include "tests/support/ranks.h"

namespace zeroth::engine::save_model_test {
namespace {

// What all ranks of a grid of 2 x `tensor` make of the boxes in their blocks.
void check_joined(int tensor) {
  testing::RankOptions options;
  options.grid = comm::MeshShape::data_parallel(2).with(comm::MeshDim::kTp, tensor);
  testing::run_ranks(
      2 * tensor,
      [&](std::shared_ptr<comm::DeviceMesh> mesh) {
        const torch::NoGradGuard no_grad;
        const model::Blocks blocks = make_split_chain(*mesh), whole = make_split_chain(0, 1);
        const zero::UnitPlan plan = zero::plan_units(blocks, *mesh);
        const zero::UnitPlan alone = zero::plan_units(whole, 1);
        const std::vector<zero::GlobalParameter> parameters = zero::global_parameters(plan);
        const std::vector<zero::GlobalParameter> expected = zero::global_parameters(alone);
        const SliceGatherer joiner(plan, parameters, *mesh);
        for (size_t i = 0; i < parameters.size(); ++i) {
          CAPTURE(parameters[i].name);
          std::vector<torch::Tensor> own;
          for (const auto& [unit, slot] : parameters[i].slices) {
            own.push_back(plan.units[unit].params[slot]);
          }
          const auto& [unit, slot] = expected[i].slices.front();
          CHECK(at::equal(joiner.gather(i, own), alone.units[unit].params[slot]));
        }
      },
      options);
}

}  // namespace

TEST_CASE("boxes of all ranks that share layers make up whole parameters, also fused ones") {
  check_joined(1);
  check_joined(2);
  check_joined(4);
}

}  // namespace zeroth::engine::save_model_test
