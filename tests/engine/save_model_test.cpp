#include "engine/step/save_model.h"

#include <doctest/doctest.h>

#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "engine/state/model_sink.h"
#include "tests/engine/chain_config.h"
#include "tests/engine/split_chain.h"
#include "tests/support/chain.h"
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

// One that takes what its rank holds, if it may join.
class Joining final : public ModelSink {
 public:
  explicit Joining(bool joins) : joins_(joins) {}
  void begin(const std::vector<model::PlannedTensor>& parameters, torch::Dtype) override {
    num_planned = std::ssize(parameters);
  }
  std::string directory() const override { return "there"; }
  bool join(const std::string& directory, const std::vector<model::PlannedTensor>& parameters,
            torch::Dtype) override {
    CHECK(directory == "there");
    num_planned = std::ssize(parameters);
    return joins_;
  }
  void write(const std::string& name, const torch::Tensor&) override { names.push_back(name); }

  int64_t num_planned = 0;
  std::vector<std::string> names;

 private:
  bool joins_;
};

}  // namespace

TEST_CASE("boxes of all ranks that share layers make up whole parameters, also fused ones") {
  check_joined(1);
  check_joined(2);
  check_joined(4);
}

TEST_CASE("the first rank of each stage saves what it holds, or passes it to rank 0") {
  for (const bool joins : {true, false}) {
    const comm::MeshShape grid =
        comm::MeshShape().with(comm::MeshDim::kPp, 2).with(comm::MeshDim::kDp, 2);
    std::map<int, std::vector<std::string>> names;  // by rank
    std::mutex mutex;
    testing::run_ranks(4,
                       [&](const std::shared_ptr<comm::DeviceMesh>& mesh) {
                         configs::Config config = chain_config(4, 1, 2);
                         config.zero.stage = 3;
                         config.pipeline.stages = 2;
                         const auto engine =
                             testing::make_engine(testing::make_chain(), config, mesh);
                         Joining sink(joins);
                         engine->save_model(sink);
                         const std::lock_guard lock(mutex);
                         names[mesh->rank()] = sink.names;
                         CHECK(sink.num_planned == (mesh->rank() % 2 == 0 ? 8 : 0));
                       },
                       {.grid = grid});
    CHECK(names[1].empty());
    CHECK(names[3].empty());
    CHECK(names[0].size() + names[2].size() == 8);
    CHECK(names[2].empty() != joins);
    CHECK(names[0].front() == "embedding.weight");
    if (joins) CHECK(names[2].back().starts_with("head."));
  }
}

}  // namespace zeroth::engine::save_model_test
