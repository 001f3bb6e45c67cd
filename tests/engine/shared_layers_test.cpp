// Steps of ranks of which some share every layer.
#include <ATen/ATen.h>
#include <doctest/doctest.h>

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "base/error.h"
#include "engine/state/run_state.h"
#include "tests/support/chain.h"
#include "tests/support/ranks.h"

namespace zeroth::engine::shared_layers_test {
namespace {

using comm::MeshDim;
using comm::MeshShape;

// A block that all ranks of axis tensor hold and run as a whole. The first of them gives all of its
// gradient, and the others zeros: what each gives is an addend.
class Replica final : public model::Block {
 public:
  Replica(std::shared_ptr<model::Block> whole, bool adds)
      : Block(whole->label()), whole_(register_module("whole", whole)) {
    for (const torch::Tensor& parameter : whole->parameters()) {
      if (!adds) parameter.register_hook([](const torch::Tensor& g) { return at::zeros_like(g); });
    }
  }
  std::optional<model::Splits> splits() const override { return model::Splits(); }
  torch::Tensor forward(const torch::Tensor& x, const model::MicroBatch& batch) override {
    return whole_->forward(x, batch);
  }

 private:
  std::shared_ptr<model::Block> whole_;
};

std::unique_ptr<Engine> engine_on(const std::shared_ptr<comm::DeviceMesh>& mesh,
                                  const configs::Config& config) {
  model::Blocks blocks;
  const bool adds = mesh->coordinate(MeshDim::kTp) == 0;
  for (const auto& block : testing::make_chain({.hidden = 20})) {
    blocks.push_back(std::make_shared<Replica>(block, adds));
  }
  return testing::make_engine(std::move(blocks), config, mesh);
}

testing::ChainLoader loader_on(const comm::DeviceMesh& mesh) {
  return testing::ChainLoader({.rank = mesh.coordinate(MeshDim::kDp), .world_size = 2});
}

configs::Config config_of(int stage, configs::LossMean mean) {
  configs::Config config;
  config.batch = {.train_batch_size = 12, .micro_batch_size = 6, .accumulation_steps = 1};
  config.loss_mean = mean;
  config.zero.stage = stage;
  config.zero.param_persistence_threshold_elements = 0;
  return config;
}

void on_grid(int tensor, const std::function<void(std::shared_ptr<comm::DeviceMesh>)>& run) {
  testing::RankOptions options;
  options.grid = MeshShape::data_parallel(2).with(MeshDim::kTp, tensor);
  testing::run_ranks(2 * tensor, run, options);
}

struct Reported {
  std::vector<StepStats> steps;
  EvalStats eval;
};

// What each rank is told of three steps and an evaluation.
std::vector<Reported> train(int tensor, const configs::Config& config) {
  std::vector<Reported> reported(static_cast<size_t>(2 * tensor));
  on_grid(tensor, [&](std::shared_ptr<comm::DeviceMesh> mesh) {
    const auto engine = engine_on(mesh, config);
    testing::ChainLoader loader = loader_on(*mesh);
    Reported& own = reported[static_cast<size_t>(mesh->rank())];
    for (int step = 0; step < 3; ++step) own.steps.push_back(engine->train_batch(loader));
    own.eval = engine->eval_batch(loader, 2);
  });
  return reported;
}

}  // namespace

TEST_CASE("losses, counts and norms are those of two data ranks, however many share a layer") {
  for (const int stage : {0, 1, 2, 3}) {
    for (const auto mean : {configs::LossMean::kToken, configs::LossMean::kMicroBatch}) {
      const configs::Config config = config_of(stage, mean);
      const Reported one = train(1, config).front();
      for (const Reported& reported : train(2, config)) {
        CAPTURE(stage);
        for (size_t step = 0; step < 3; ++step) {
          const StepStats &own = reported.steps[step], &expected = one.steps[step];
          CHECK(own.loss == doctest::Approx(expected.loss).epsilon(1e-6));
          CHECK(own.grad_norm == doctest::Approx(expected.grad_norm).epsilon(1e-5));
          CHECK(own.tokens == expected.tokens);
          CHECK(own.num_label_tokens == expected.num_label_tokens);
        }
        CHECK(reported.eval.loss == doctest::Approx(one.eval.loss).epsilon(1e-6));
        CHECK(reported.eval.num_label_tokens == one.eval.num_label_tokens);
      }
    }
  }
}

TEST_CASE("the ranks of a grid save each element of masters and states once") {
  for (const int stage : {0, 3}) {
    on_grid(2, [&](std::shared_ptr<comm::DeviceMesh> mesh) {
      const auto engine = engine_on(mesh, config_of(stage, configs::LossMean::kToken));
      const ShardedState held = engine->impl().sharded_state();
      int64_t elements = 0;
      for (const StateSlice& piece : slices_to_save(held)) elements += piece.size();
      const torch::Tensor all = torch::tensor({elements}, torch::kLong);
      mesh->cpu_group().all_reduce(all).wait();
      CHECK(all.item<int64_t>() == 3 * engine->num_parameters());
    });
  }
}

TEST_CASE("a global batch without a trained token is told with each of its samples once") {
  struct NoLabelsLoader final : DataLoader {
    explicit NoLabelsLoader(testing::ChainLoader loader) : inner(std::move(loader)) {}
    model::MicroBatch next() override {
      model::MicroBatch batch = inner.next();
      batch.targets.fill_(model::kIgnoreIndex);
      return batch;
    }
    testing::ChainLoader inner;
  };
  on_grid(2, [](std::shared_ptr<comm::DeviceMesh> mesh) {
    const auto engine = engine_on(mesh, config_of(2, configs::LossMean::kToken));
    NoLabelsLoader loader(loader_on(*mesh));
    CHECK_THROWS_WITH_AS(engine->train_batch(loader),
                         "the global batch of step 1 has no label tokens (samples 0, 1, 2, 3, 4, "
                         "5, 6, 7, 8, 9, 10, 11)",
                         Error);
  });
}

}  // namespace zeroth::engine::shared_layers_test
