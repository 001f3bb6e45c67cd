#include "engine/verify/parameter_faults.h"

#include <ATen/ATen.h>
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "tests/engine/chain_config.h"
#include "tests/support/chain.h"
#include "tests/support/ranks.h"
#include "tests/support/read_state.h"

namespace zeroth::engine::non_finite_test {
namespace {

model::Blocks chain_with(double& factor) {
  model::Blocks blocks = testing::make_chain();
  blocks.insert(blocks.begin() + 2, std::make_shared<Factor>(&factor));
  return blocks;
}

// Parameters, masters and moments of this rank.
std::vector<torch::Tensor> everything(Engine& engine) {
  std::vector<torch::Tensor> all;
  for (size_t unit = 0; unit < engine.impl().plan().units.size(); ++unit) {
    all.push_back(testing::shard_of(engine, unit));
    all.push_back(testing::read_master(engine.impl().optimizer(), unit));
    for (const size_t state : {0, 1})
      all.push_back(testing::read_state(engine.impl().optimizer(), unit, state + 1));
  }
  return all;
}

bool equal(const std::vector<torch::Tensor>& a, const std::vector<torch::Tensor>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const torch::Tensor& x, const torch::Tensor& y) { return at::equal(x, y); });
}

configs::Config fp16_config(int64_t power, int64_t hysteresis) {
  configs::Config config = chain_config(6, 1, 2);
  config.precision = configs::Precision::kFp16;
  config.loss_scale = {.initial_scale_power = static_cast<int>(power), .hysteresis = hysteresis};
  return config;
}

}  // namespace

TEST_CASE("a non-finite gradient on one rank skips the step on all and leaves all as it was") {
  for (const int stage : {0, 1, 2, 3}) {
    CAPTURE(stage);
    testing::run_ranks(2, [&](std::shared_ptr<comm::DeviceMesh> mesh) {
      double factor = 1;
      configs::Config config = chain_config(6, 1, 2);
      config.zero.stage = stage;
      config.scheduler = {.kind = configs::SchedulerConfig::Kind::kWarmupLr,
                          .warmup_max_lr = 0.1,
                          .warmup_num_steps = 5};
      const auto engine = testing::make_engine(chain_with(factor), config, mesh);
      testing::ChainLoader loader({.rank = mesh->rank(), .world_size = 2});
      for (int step = 0; step < 2; ++step) CHECK_FALSE(engine->train_batch(loader).skipped);
      const std::vector<torch::Tensor> before = everything(*engine);
      factor = mesh->rank() == 1 ? INFINITY : 1;
      const StepStats skipped = engine->train_batch(loader);
      CHECK(skipped.skipped);
      CHECK(skipped.step == 3);
      CHECK(skipped.skipped_total == 1);
      CHECK_FALSE(std::isfinite(skipped.grad_norm));
      CHECK(equal(everything(*engine), before));
      factor = 1;
      const StepStats next = engine->train_batch(loader);
      CHECK_FALSE(next.skipped);
      CHECK(next.skipped_total == 1);
      CHECK(next.lr == skipped.lr);
      CHECK_FALSE(equal(everything(*engine), before));
    });
  }
}

TEST_CASE("ten skipped steps in a row end the run and name block and parameter") {
  testing::run_ranks(2, [](std::shared_ptr<comm::DeviceMesh> mesh) {
    double factor = NAN;
    model::Blocks blocks = testing::make_chain();
    blocks.insert(blocks.begin() + 2, std::make_shared<Factor>(&factor));
    const auto engine = testing::make_engine(blocks, chain_config(6, 1, 2), mesh);
    testing::ChainLoader loader({.rank = mesh->rank(), .world_size = 2});
    for (int step = 1; step < 10; ++step) {
      const StepStats stats = engine->train_batch(loader);
      CHECK(stats.skipped);
      CHECK(engine->decision().failure.empty());
    }
    engine->train_batch(loader);
    const std::string message = engine->decision().failure;
    CHECK_THROWS_WITH_AS(engine->train_batch(loader), message.c_str(), Error);
    CHECK(message.find("10 steps in a row") != std::string::npos);
    CHECK(message.find("since step 1") != std::string::npos);
    CHECK(message.find("block head, parameter head.weight") != std::string::npos);
    CHECK(message.find("output of block factor is the first that is not finite") !=
          std::string::npos);
  });
}

TEST_CASE("skips that are not in a row do not end the run") {
  testing::run_ranks(1, [](std::shared_ptr<comm::DeviceMesh> mesh) {
    double factor = 1;
    model::Blocks blocks = testing::make_chain();
    blocks.insert(blocks.begin() + 2, std::make_shared<Factor>(&factor));
    const auto engine = testing::make_engine(blocks, chain_config(12, 1, 1), mesh);
    testing::ChainLoader loader({});
    for (int step = 0; step < 24; ++step) {
      factor = step % 9 == 8 ? 1 : NAN;
      CHECK(engine->train_batch(loader).skipped == (step % 9 != 8));
    }
  });
}

TEST_CASE("a fp16 run halves its scale at overflows and skips those steps only") {
  testing::run_ranks(2, [](std::shared_ptr<comm::DeviceMesh> mesh) {
    configs::Config config = chain_config(6, 1, 2);
    config.precision = configs::Precision::kFp16;
    config.loss_scale.initial_scale_power =
        24;  // gradients of the head overflow fp16 at this scale
    config.loss_scale.hysteresis = 1;
    const auto engine = testing::make_engine(testing::make_chain(), config, mesh);
    testing::ChainLoader loader({.rank = mesh->rank(), .world_size = 2});
    double scale = std::ldexp(1.0, 24);
    int skipped = 0;
    for (int step = 0; step < 14; ++step) {
      const StepStats stats = engine->train_batch(loader);
      CHECK(stats.loss_scale == scale);
      if (stats.skipped) {
        ++skipped;
        scale /= 2;
      }
    }
    CHECK(skipped > 0);
    CHECK(skipped < 10);
  });
}

TEST_CASE("the block that made a value that is not finite is found in any micro-batch") {
  testing::run_ranks(1, [](std::shared_ptr<comm::DeviceMesh> mesh) {
    double factor = 1;
    model::Blocks blocks = testing::make_chain();
    blocks.insert(blocks.begin() + 2, std::make_shared<Factor>(&factor, /*bad_call_of_three=*/1));
    const auto engine = testing::make_engine(blocks, chain_config(4, 3, 1), mesh);
    testing::ChainLoader loader({.accumulation = 3});
    std::string message;
    for (int step = 0; step < 10; ++step) engine->train_batch(loader);
    message = engine->decision().failure;
    CHECK(message.find("output of block factor is the first that is not finite") !=
          std::string::npos);
  });
}

TEST_CASE("a dynamic scale may fall over more than ten steps in a row") {
  testing::run_ranks(2, [](std::shared_ptr<comm::DeviceMesh> mesh) {
    double factor = NAN;
    const auto engine = testing::make_engine(chain_with(factor), fp16_config(20, 2), mesh);
    testing::ChainLoader loader({.rank = mesh->rank(), .world_size = 2});
    for (int step = 1; step <= 15; ++step) {
      const StepStats stats = engine->train_batch(loader);
      CHECK(stats.skipped);
      CHECK(engine->decision().failure.empty());
    }
    factor = 1;
    CHECK_FALSE(engine->train_batch(loader).skipped);
    CHECK_FALSE(engine->train_batch(loader).skipped);
  });
}

TEST_CASE("an overflow at the floor of the dynamic scale ends the run where DeepSpeed ends it") {
  for (const configs::OnNonFinite wanted :
       {configs::OnNonFinite::kSkip, configs::OnNonFinite::kFail}) {
    testing::run_ranks(2, [&](std::shared_ptr<comm::DeviceMesh> mesh) {
      double factor = NAN;
      configs::Config config = fp16_config(3, 2);
      config.loss_scale.min_scale = 2;
      config.on_non_finite = wanted;
      const auto engine = testing::make_engine(chain_with(factor), config, mesh);
      testing::ChainLoader loader({.rank = mesh->rank(), .world_size = 2});
      // 8 (spends the hysteresis), 8, 4, then 2, which cannot be halved.
      for (const double scale : {8, 8, 4}) {
        const StepStats stats = engine->train_batch(loader);
        CHECK(stats.loss_scale == scale);
        CHECK(engine->decision().failure.empty());
      }
      CHECK(engine->train_batch(loader).loss_scale == 2);
      const std::string last = engine->decision().failure;
      CHECK(last.find("step 4 are not finite at a loss scale of 2, its floor") !=
            std::string::npos);
      CHECK(last.find("fp16.min_loss_scale") != std::string::npos);
      CHECK(last.find("parameter head.weight") != std::string::npos);
      CHECK_THROWS_WITH_AS(engine->train_batch(loader), last.c_str(), Error);
    });
  }
}

TEST_CASE("where it shall fail, the first gradient that is not finite ends the run") {
  testing::run_ranks(2, [](std::shared_ptr<comm::DeviceMesh> mesh) {
    double factor = 1;
    configs::Config config = chain_config(6, 1, 2);
    config.on_non_finite = configs::OnNonFinite::kFail;
    const auto engine = testing::make_engine(chain_with(factor), config, mesh);
    testing::ChainLoader loader({.rank = mesh->rank(), .world_size = 2});
    engine->train_batch(loader);
    CHECK(engine->decision().failure.empty());
    factor = mesh->rank() == 0 ? NAN : 1;
    engine->train_batch(loader);
    CHECK(engine->decision().failure ==
          "the gradients of step 2 are not finite, first in backward in block head, parameter "
          "head.weight");
    CHECK_THROWS_AS(engine->train_batch(loader), Error);
  });
}

TEST_CASE("an update that leaves parameters that are not finite ends the run and names the first") {
  for (const int stage : {0, 2, 3}) {
    CAPTURE(stage);
    testing::run_ranks(2, [&](std::shared_ptr<comm::DeviceMesh> mesh) {
      configs::Config config = chain_config(6, 1, 2);
      config.zero.stage = stage;
      config.optimizer.lr = 1e39;  // beyond fp32
      const auto engine = testing::make_engine(testing::make_chain(), config, mesh);
      testing::ChainLoader loader({.rank = mesh->rank(), .world_size = 2});
      engine->train_batch(loader);
      CHECK(engine->decision().failure.empty());
      engine->train_batch(loader);
      const std::string failure = engine->decision().failure;
      CHECK(failure ==
            "the update before step 2 left parameters that are not finite, the first in block "
            "head, parameter head.weight");
      CHECK_THROWS_WITH_AS(engine->train_batch(loader), failure.c_str(), Error);
    });
  }
}

TEST_CASE("a step tells where and since when gradients are not finite") {
  testing::run_ranks(2, [](std::shared_ptr<comm::DeviceMesh> mesh) {
    double factor = 1;
    const auto engine = testing::make_engine(chain_with(factor), chain_config(6, 1, 2), mesh);
    testing::ChainLoader loader({.rank = mesh->rank(), .world_size = 2});
    CHECK(engine->train_batch(loader).not_finite.empty());
    factor = NAN;
    for (int step = 0; step < 2; ++step) {
      CHECK(engine->train_batch(loader).not_finite ==
            "since step 2, first in backward in block head, parameter head.weight");
    }
    factor = 1;
    CHECK(engine->train_batch(loader).not_finite.empty());
  });
}

TEST_CASE("bf16 applies what is not finite when it is told not to look") {
  for (const bool looks : {true, false}) {
    CAPTURE(looks);
    testing::run_ranks(2, [&](std::shared_ptr<comm::DeviceMesh> mesh) {
      double factor = 1;
      configs::Config config = chain_config(6, 1, 2);
      config.precision = configs::Precision::kBf16;
      config.check_grad_overflow = looks;
      const auto engine = testing::make_engine(chain_with(factor), config, mesh);
      testing::ChainLoader loader({.rank = mesh->rank(), .world_size = 2});
      factor = mesh->rank() == 1 ? NAN : 1;
      const StepStats stats = engine->train_batch(loader);
      CHECK(stats.skipped == looks);
      CHECK(stats.skipped_total == (looks ? 1 : 0));
      const char* const lost =
          "the gradients of step 1 are not finite, first in backward in block head, parameter "
          "head.weight, and were applied (bf16.check_grad_overflow is false)";
      CHECK(engine->decision().failure == (looks ? "" : lost));
      CHECK(testing::shard_of(*engine, 0).isfinite().all().item<bool>() == looks);
    });
  }
}

}  // namespace zeroth::engine::non_finite_test
