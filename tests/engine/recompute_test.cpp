// Recompute of chains that are not plain: frozen parameters, a module that two blocks use, a block
// that fails while it is run again.
#include <ATen/ATen.h>
#include <doctest/doctest.h>

#include <stdexcept>

#include "engine/engine_impl.h"
#include "tests/engine/chain_config.h"
#include "tests/support/chain.h"
#include "tests/support/ranks.h"

namespace zeroth::engine::recompute_test {
namespace {

using torch::Tensor;

struct Product : torch::nn::Module {
  Product() : weight(register_parameter("weight", torch::eye(6) * 0.5)) {}
  Tensor weight;
};

// tanh(x W) + x, with a product that other blocks may use too.
class Sharing final : public model::Block {
 public:
  Sharing(std::string label, std::shared_ptr<Product> product)
      : Block(std::move(label)), product_(register_module("product", std::move(product))) {}
  Tensor forward(const Tensor& x, const model::MicroBatch&) override {
    return at::tanh(at::matmul(x, product_->weight)) + x;
  }

 private:
  std::shared_ptr<Product> product_;
};

// Passes x on; throws at the given call of forward.
class Failing final : public model::Block {
 public:
  explicit Failing(int at) : Block("failing"), at_(at) {}
  Tensor forward(const Tensor& x, const model::MicroBatch&) override {
    if (++calls_ == at_) throw std::runtime_error("no memory, say");
    return x * 1.0;
  }

 private:
  int at_;
  int calls_ = 0;
};

model::Blocks sharing_chain() {
  const auto product = std::make_shared<Product>();
  model::Blocks blocks = testing::make_chain();
  blocks.insert(blocks.begin() + 1, std::make_shared<Sharing>("first", product));
  blocks.insert(blocks.begin() + 3, std::make_shared<Sharing>("second", product));
  return blocks;
}

// Every parameter after three steps.
std::vector<Tensor> trained(model::Blocks blocks, const configs::Config& config,
                            const std::shared_ptr<comm::DeviceMesh>& mesh) {
  const auto engine = testing::make_engine(blocks, config, mesh);
  testing::ChainLoader loader({.rank = mesh->rank(), .world_size = mesh->world_size()});
  for (int step = 0; step < 3; ++step) engine->train_batch(loader);
  engine->eval_batch(loader, 1);  // gathers what the last update changed
  std::vector<Tensor> parameters;
  for (const auto& block : blocks) {
    for (const Tensor& parameter : block->parameters()) {
      parameters.push_back(parameter.detach().clone());
    }
  }
  return parameters;
}

void check_bits(const std::vector<Tensor>& actual, const std::vector<Tensor>& expected) {
  REQUIRE(actual.size() == expected.size());
  for (size_t i = 0; i < actual.size(); ++i) CHECK(torch::equal(actual[i], expected[i]));
}

// Two ways to keep fewer inputs than blocks, and none.
std::vector<configs::RecomputeConfig> ways() {
  return {{}, {.every_nth_block = 1}, {.every_nth_block = 2}, {.number_checkpoints = 2}};
}

}  // namespace

TEST_CASE(
    "recompute changes no bit of a chain with frozen parameters, or with a module used twice") {
  for (const int stage : {0, 1}) {
    testing::run_ranks(2, [&](std::shared_ptr<comm::DeviceMesh> mesh) {
      for (const bool frozen : {true, false}) {
        std::vector<Tensor> plain;
        for (const configs::RecomputeConfig& recompute : ways()) {
          configs::Config config = chain_config(6, 1, 2);
          config.zero.stage = stage;
          config.recompute = recompute;
          const model::Blocks blocks =
              frozen ? testing::make_chain({.frozen = true}) : sharing_chain();
          const std::vector<Tensor> parameters = trained(blocks, config, mesh);
          if (plain.empty()) plain = parameters;
          check_bits(parameters, plain);
        }
      }
    });
  }
}

TEST_CASE("a module used twice gets the gradients of both uses") {
  testing::run_ranks(1, [](std::shared_ptr<comm::DeviceMesh> mesh) {
    configs::Config config = chain_config(12, 1, 1);
    config.recompute.every_nth_block = 1;
    const model::Blocks blocks = sharing_chain();
    model::Blocks apart = testing::make_chain();
    apart.insert(apart.begin() + 1,
                 std::make_shared<Sharing>("first", std::make_shared<Product>()));
    apart.insert(apart.begin() + 3,
                 std::make_shared<Sharing>("second", std::make_shared<Product>()));
    CHECK(trained(blocks, config, mesh)[1]
              .sub(trained(apart, config, mesh)[1])
              .abs()
              .max()
              .item<double>() > 1e-4);
  });
}

TEST_CASE(
    "an exception in recompute leaves nothing gathered, and a new engine trains as if it had not "
    "been") {
  testing::run_ranks(1, [](std::shared_ptr<comm::DeviceMesh> mesh) {
    configs::Config config = chain_config(12, 1, 1);
    config.zero.stage = 3;
    config.zero.param_persistence_threshold_elements = 0;
    config.recompute.every_nth_block = 1;
    const auto chain = [](int fails_at) {
      model::Blocks blocks = testing::make_chain();
      blocks.insert(blocks.begin() + 2, std::make_shared<Failing>(fails_at));
      return blocks;
    };
    const std::vector<Tensor> expected = trained(chain(-1), config, mesh);

    const auto engine =
        testing::make_engine(chain(4), config, mesh);  // forward, again, forward, again
    testing::ChainLoader loader({});
    engine->train_batch(loader);
    CHECK_THROWS_WITH(engine->train_batch(loader), "no memory, say");
    CHECK(engine->impl().store().buffers().live_elements() == 0);
    CHECK(torch::GradMode::is_enabled());
    check_bits(trained(chain(-1), config, mesh), expected);
  });
}

}  // namespace zeroth::engine::recompute_test
