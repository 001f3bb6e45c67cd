#include "zero/strategy.h"

#include <doctest/doctest.h>

#include "tests/support/chain.h"
#include "tests/support/ranks.h"

namespace zeroth::zero::strategy_test {
namespace {

struct Rest {
  int64_t parameters;
  int64_t gradients;
  int64_t live;
};

// Bytes that rest on a rank of two under the given stage, with two micro-batches to a step.
Rest rest(int stage, int64_t persistence_threshold) {
  Rest result{};
  testing::run_ranks(2, [&](std::shared_ptr<comm::DeviceMesh> mesh) {
    configs::Config config;
    config.zero.stage = stage;
    config.zero.param_persistence_threshold_elements = persistence_threshold;
    config.batch.accumulation_steps = 2;
    const model::Blocks blocks = testing::make_chain({.hidden = 32});
    UnitPlan plan = plan_units(blocks, *mesh);
    const Strategy strategy = make_strategy(plan, config, *mesh);
    if (mesh->rank() == 0) {
      result = {strategy.store->persistent_bytes(), strategy.grads->persistent_bytes(),
                strategy.store->buffers().live_elements()};
    }
  });
  return result;
}

}  // namespace

TEST_CASE("each stage shards one thing more") {
  const Rest none = rest(0, 0), one = rest(1, 0), two = rest(2, 0), three = rest(3, 0);
  CHECK(one.parameters == none.parameters);
  CHECK(one.gradients == none.gradients);
  CHECK(two.parameters == none.parameters);
  CHECK(two.gradients * 2 == none.gradients);
  CHECK(three.gradients == two.gradients);
  CHECK(three.parameters * 2 == none.parameters);
}

TEST_CASE("units up to the persistence threshold stay whole") {
  CHECK(rest(3, 1 << 20).parameters == rest(2, 0).parameters);
  const int64_t mixed =
      rest(3, 700).parameters;  // the embedding and the head have 608 elements, a layer 1056
  CHECK(mixed > rest(3, 0).parameters);
  CHECK(mixed < rest(2, 0).parameters);
}

TEST_CASE("the dtype that is told of opened gradients is that of what backward writes into") {
  using configs::Precision;
  for (const int ranks : {1, 2}) {
    testing::run_ranks(ranks, [&](std::shared_ptr<comm::DeviceMesh> mesh) {
      const model::Blocks blocks = testing::make_chain();
      for (const int stage : {0, 1, 2, 3}) {
        for (const int64_t micro_batches : {1, 2, -2}) {  // negative: breadth first
          for (const Precision accumulation : {Precision::kFp32, Precision::kBf16}) {
            configs::Config config;
            config.precision = Precision::kBf16;
            config.zero.stage = stage;
            config.batch.accumulation_steps = std::abs(micro_batches);
            config.gradients.accumulation = accumulation;
            if (micro_batches < 0)
              config.pipeline.schedule = configs::PipelineConfig::Schedule::kBreadthFirst;
            const torch::Dtype reported =
                grad_buffer_dtype(plan_units(blocks, *mesh), config, torch::kCPU);
            UnitPlan plan = plan_units(blocks, *mesh);
            const Strategy strategy = make_strategy(plan, config, *mesh);
            strategy.grads->set_backward_order(
                std::vector<size_t>(micro_batches < 0 ? 2 : 1, /*block=*/0));
            strategy.grads->open(0);
            CAPTURE(stage);
            CAPTURE(micro_batches);
            const torch::Tensor& weight = plan.units[plan.block_units[0].front()].params.front();
            CHECK((weight.grad().scalar_type() == reported));
          }
        }
      }
    });
  }
}

TEST_CASE("gradients are divided before or after they cross four ranks as DeepSpeed divides them") {
  testing::run_ranks(4, [](std::shared_ptr<comm::DeviceMesh> mesh) {
    const model::Blocks blocks = testing::make_chain();
    UnitPlan plan = plan_units(blocks, *mesh);
    const auto check = [&](const configs::GradientConfig& gradients, bool scatter,
                           double all_reduced, double scattered) {
      for (const int stage : {0, 1, 2, 3}) {
        configs::Config config;
        config.zero.stage = stage;
        config.zero.reduce_scatter = scatter;
        config.gradients = gradients;
        const GradientFactors factors = make_strategy(plan, config, *mesh).factors;
        CAPTURE(stage);
        CHECK(factors.before == (stage == 0 ? all_reduced : scattered));
        const bool sums = gradients.reduce == configs::GradientConfig::Reduction::kSum;
        CHECK(factors.before * factors.after == (sums ? 4 : 1));
      }
    };
    check({}, true, 4, 1);
    check({}, false, 4, 4);
    check({.prescale = true}, true, 1, 1);
    check({.prescale = true}, false, 1, 1);
    check({.predivide_factor = 2}, true, 2, 2);
    check({.predivide_factor = 2}, false, 2, 2);
    check({.reduce = configs::GradientConfig::Reduction::kSum}, true, 4, 4);
  });
}

TEST_CASE("one rank is not sharded whatever the stage") {
  testing::run_ranks(1, [](std::shared_ptr<comm::DeviceMesh> mesh) {
    configs::Config config;
    config.zero.stage = 3;
    const model::Blocks blocks = testing::make_chain();
    UnitPlan plan = plan_units(blocks, *mesh);
    const Strategy strategy = make_strategy(plan, config, *mesh);
    CHECK((strategy.store->range(0) == Range{0, plan.units[0].layout.numel()}));
    CHECK(strategy.description.find("stage 3 (one rank)") != std::string::npos);
  });
}

}  // namespace zeroth::zero::strategy_test
