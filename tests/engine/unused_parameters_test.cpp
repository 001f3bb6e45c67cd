#include "engine/verify/parameter_faults.h"

#include <ATen/ATen.h>
#include <doctest/doctest.h>

#include "base/error.h"
#include "tests/engine/chain_config.h"
#include "tests/support/chain.h"
#include "tests/support/ranks.h"

namespace zeroth::engine::unused_parameters_test {
namespace {

// Passes on x times a weight, where it is told to; has a parameter that is never used and one
// without elements.
class Gate final : public model::Block {
 public:
  explicit Gate(const bool& uses)
      : Block("gate"),
        uses_(uses),
        weight_(register_parameter("weight", torch::full({70}, 0.9f))),
        empty_(register_parameter("empty", torch::ones({0, 3}))) {}
  torch::Tensor forward(const torch::Tensor& x, const model::MicroBatch&) override {
    return uses_ ? x * weight_[3] : x * 0.9f;
  }

 private:
  const bool& uses_;
  torch::Tensor weight_;
  torch::Tensor empty_;
};

// A block without parameters, and one whose only parameter has no elements.
struct Empty final : model::Block {
  explicit Empty(bool has_parameter) : Block(has_parameter ? "empty" : "nothing") {
    if (has_parameter) register_parameter("weight", torch::ones({0}));
  }
  torch::Tensor forward(const torch::Tensor& x, const model::MicroBatch&) override { return x * 1; }
};

model::Blocks make_blocks(const bool& uses) {
  model::Blocks blocks = testing::make_chain({.frozen = true});
  blocks.insert(blocks.begin() + 2, std::make_shared<Gate>(uses));
  blocks.insert(blocks.begin() + 3, std::make_shared<Empty>(true));
  blocks.insert(blocks.begin() + 1, std::make_shared<Empty>(false));
  return blocks;
}

// Losses of six steps in which rank `without` (-1: all, -2: none) does not use the gate's weight.
std::vector<double> losses(configs::Config config, int ranks, int without) {
  std::vector<double> result;
  testing::run_ranks(ranks, [&](std::shared_ptr<comm::DeviceMesh> mesh) {
    const bool uses = without == -2 || (without >= 0 && without != mesh->rank());
    const auto engine = testing::make_engine(make_blocks(uses), config, mesh);
    testing::ChainLoader loader({.accumulation = config.batch.accumulation_steps,
                                 .rank = mesh->rank(),
                                 .world_size = ranks});
    for (int step = 0; step < 6; ++step) {
      const StepStats stats = engine->train_batch(loader);
      if (mesh->rank() == 0) result.push_back(stats.loss);
    }
  });
  return result;
}

double largest_difference(const std::vector<double>& a, const std::vector<double>& b) {
  double largest = 0;
  for (size_t i = 0; i < a.size(); ++i) largest = std::max(largest, std::abs(a[i] - b[i]));
  return largest;
}

}  // namespace

TEST_CASE("parameters without gradient, without elements or frozen train alike in every stage") {
  for (const int without : {-2, -1, 0, 1}) {
    CAPTURE(without);
    configs::Config config = chain_config(6, 1, 2);
    const std::vector<double> expected = losses(config, 2, without);
    CHECK(expected.back() < expected.front());
    for (const int stage : {1, 2, 3}) {
      for (const int64_t accumulation : {1, 3}) {
        CAPTURE(stage);
        CAPTURE(accumulation);
        config = chain_config(6 / accumulation, accumulation, 2);
        config.zero.stage = stage;
        // With a weight of 1 rank the samples that use it depend on how they are dealt.
        if (without >= 0 && accumulation > 1) continue;
        CHECK(largest_difference(losses(config, 2, without), expected) < 2e-5);
      }
    }
  }
}

TEST_CASE("an unused parameter is refused by name and rank where it may not be ignored") {
  for (const int stage : {0, 1, 2, 3}) {
    CAPTURE(stage);
    configs::Config config = chain_config(6, 1, 2);
    config.zero.stage = stage;
    config.zero.ignore_unused_parameters = false;
    CHECK_NOTHROW(losses(config, 2, -2));
    const auto refusal = [&](int without, const char* rank) {
      const std::string message =
          std::string("step 1: block gate, parameter gate.weight got no gradient on rank ") + rank +
          ": zero_optimization.ignore_unused_parameters is false (with true its gradient counts as "
          "zero)";
      CHECK_THROWS_WITH_AS(losses(config, 2, without), message.c_str(), Error);
    };
    refusal(-1, "0");
    refusal(1, "1");
  }
}

}  // namespace zeroth::engine::unused_parameters_test
