// The dynamic loss scale of a run whose gradients overflow when the test says so.
#include <doctest/doctest.h>

#include <cmath>
#include <string>
#include <vector>

#include "tests/equivalence/expect_row.h"
#include "tests/support/chain.h"
#include "tests/support/ranks.h"

namespace zeroth::equivalence::loss_scale_test {
namespace {

// Passes its input on, or makes everything overflow.
class Gate final : public model::Block {
 public:
  explicit Gate(const bool& overflows)
      : Block("gate"),
        overflows_(overflows),
        weight_(register_parameter("weight", torch::ones({1}))) {}
  torch::Tensor forward(const torch::Tensor& x, const model::MicroBatch&) override {
    return x * weight_ * (overflows_ ? INFINITY : 1.0);
  }

 private:
  const bool& overflows_;
  torch::Tensor weight_;
};

configs::Config fp16_config(const nlohmann::json& fixture, int stage) {
  configs::Config config;
  config.batch = {.train_batch_size = 12, .micro_batch_size = 6, .accumulation_steps = 1};
  config.precision = configs::Precision::kFp16;
  config.loss_scale = {.initial_scale_power = fixture["initial_scale_power"],
                       .window = fixture["window"],
                       .hysteresis = fixture["hysteresis"],
                       .min_scale = fixture["min_scale"]};
  config.zero.stage = stage;
  config.zero.param_persistence_threshold_elements = 0;
  return config;
}

}  // namespace

TEST_CASE("overflows on one rank move the dynamic scale of all as DeepSpeed's") {
  const nlohmann::json fixture = load_fixture("loss_scales");
  const std::string overflows = fixture["overflows"];
  for (const int stage : {0, 1, 2, 3}) {
    CAPTURE(stage);
    std::vector<std::vector<double>> scales(2);
    std::vector<std::string> skipped(2);
    testing::run_ranks(2, [&](std::shared_ptr<comm::DeviceMesh> mesh) {
      const auto rank = static_cast<size_t>(mesh->rank());
      bool overflow = false;
      model::Blocks blocks = testing::make_chain();
      blocks.insert(blocks.begin() + 2, std::make_shared<Gate>(overflow));
      const auto engine = testing::make_engine(blocks, fp16_config(fixture, stage), mesh);
      testing::ChainLoader loader({.rank = mesh->rank(), .world_size = 2});
      for (const char mark : overflows) {
        overflow = mark == 'x' && rank == 1;
        const engine::StepStats stats = engine->train_batch(loader);
        scales[rank].push_back(stats.loss_scale);
        skipped[rank] += stats.skipped ? 'x' : '.';
      }
    });
    for (const size_t rank : {0, 1}) {
      CHECK(scales[rank] == fixture["scales"].get<std::vector<double>>());
      CHECK(skipped[rank] == overflows);
    }
  }
}

}  // namespace zeroth::equivalence::loss_scale_test
