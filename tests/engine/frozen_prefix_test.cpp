// Blocks before the first trained one run forward only.
#include <ATen/ATen.h>
#include <doctest/doctest.h>

#include "tests/engine/chain_config.h"
#include "tests/support/chain.h"
#include "tests/support/ranks.h"

namespace zeroth::engine::frozen_prefix_test {
namespace {

// A layer that counts its forward runs and whether its output kept a graph.
struct Counting final : model::Block {
  Counting(int index, bool trained) : Block("counting." + std::to_string(index)) {
    weight_ = register_parameter(
        "weight", torch::full({6}, 0.8f + 0.05f * static_cast<float>(index)), trained);
  }
  torch::Tensor forward(const torch::Tensor& x, const model::MicroBatch&) override {
    ++runs;
    torch::Tensor y = at::tanh(x * weight_) + x;
    graphs += y.requires_grad();
    input_gradients += x.requires_grad();
    return y;
  }
  int runs = 0;
  int graphs = 0;
  int input_gradients = 0;
  torch::Tensor weight_;
};

struct Chain {
  model::Blocks blocks;
  std::vector<std::shared_ptr<Counting>> counting;
};

// The embedding and the first `frozen` of four layers are not trained.
Chain make_chain(int frozen) {
  Chain chain;
  chain.blocks = testing::make_chain({.layers = 0});
  for (torch::Tensor& parameter : chain.blocks[0]->parameters()) parameter.set_requires_grad(false);
  for (int i = 0; i < 4; ++i) {
    chain.counting.push_back(std::make_shared<Counting>(i, i >= frozen));
    chain.blocks.insert(chain.blocks.end() - 1, chain.counting.back());
  }
  return chain;
}

}  // namespace

TEST_CASE("nothing is kept and nothing runs again below the first trained block") {
  for (const int64_t every_nth_block : {0, 1, 2}) {
    for (const int stage : {0, 3}) {
      CAPTURE(every_nth_block);
      CAPTURE(stage);
      testing::run_ranks(2, [&](std::shared_ptr<comm::DeviceMesh> mesh) {
        configs::Config config = chain_config(6, 1, 2);
        config.zero.stage = stage;
        config.recompute.every_nth_block = every_nth_block;
        Chain chain = make_chain(2);
        const auto engine = testing::make_engine(chain.blocks, config, mesh);
        testing::ChainLoader loader({.rank = mesh->rank(), .world_size = 2});
        engine->train_batch(loader);
        for (const int i : {0, 1}) {
          CHECK(chain.counting[i]->runs == 1);
          CHECK(chain.counting[i]->graphs == 0);
        }
        CHECK(chain.counting[2]->graphs == 1);
        CHECK(chain.counting[2]->input_gradients == 0);
        CHECK(chain.counting[3]->input_gradients == 1);
      });
    }
  }
}

TEST_CASE("a frozen prefix trains to the same bits with and without recompute, in every stage") {
  std::vector<double> expected;
  for (const int stage : {0, 1, 2, 3}) {
    for (const configs::RecomputeConfig recompute :
         {configs::RecomputeConfig{}, configs::RecomputeConfig{.every_nth_block = 1},
          configs::RecomputeConfig{.number_checkpoints = 2}}) {
      testing::run_ranks(2, [&](std::shared_ptr<comm::DeviceMesh> mesh) {
        configs::Config config = chain_config(6, 1, 2);
        config.zero.stage = stage;
        config.recompute = recompute;
        const auto engine = testing::make_engine(make_chain(3).blocks, config, mesh);
        testing::ChainLoader loader({.rank = mesh->rank(), .world_size = 2});
        std::vector<double> losses;
        for (int step = 0; step < 5; ++step) losses.push_back(engine->train_batch(loader).loss);
        if (mesh->rank() != 0) return;
        if (expected.empty()) expected = losses;
        CHECK(losses == expected);
      });
    }
  }
  CHECK(expected.back() < expected.front());
}

TEST_CASE("a model without trained parameters can be evaluated and stepped without effect") {
  testing::run_ranks(1, [](std::shared_ptr<comm::DeviceMesh> mesh) {
    Chain chain = make_chain(4);
    for (torch::Tensor& parameter : chain.blocks.back()->parameters())
      parameter.set_requires_grad(false);
    const auto engine = testing::make_engine(chain.blocks, chain_config(12, 1, 1), mesh);
    testing::ChainLoader trained({}), evaluated({});
    CHECK(engine->train_batch(trained).loss ==
          doctest::Approx(engine->eval_batch(evaluated, 1).loss));
  });
}

}  // namespace zeroth::engine::frozen_prefix_test
