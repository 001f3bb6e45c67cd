#include "engine/train_engine.h"

#include <ATen/ATen.h>
#include <doctest/doctest.h>

#include <cmath>

#include "base/error.h"
#include "tests/support/chain.h"
#include "tests/support/ranks.h"

namespace zeroth::engine {
namespace {

configs::Config chain_config(int64_t micro_batch, int64_t accumulation, int ranks) {
  configs::Config config;
  config.batch = {micro_batch * accumulation * ranks, micro_batch, accumulation};
  config.optimizer.lr = 0.02;
  config.zero.param_persistence_threshold_elements = 0;
  return config;
}

// A loader whose every target is untrained from step `from` on.
class Untrained final : public Loader {
 public:
  explicit Untrained(int rank) : inner_({.rank = rank, .world_size = 2}) {}
  model::MicroBatch next() override {
    model::MicroBatch batch = inner_.next();
    batch.targets.fill_(model::kUntrained);
    return batch;
  }

 private:
  testing::ChainLoader inner_;
};

// A chain whose middle layer multiplies by a factor that the test sets.
struct Factor final : model::Block {
  // With bad_call_of_three 0, 1 or 2 every third forward, from that one on, gives infinity.
  explicit Factor(double* value, int bad_call_of_three = -1)
      : Block("factor"), value_(value), bad_call_(bad_call_of_three) {
    weight_ = register_parameter("weight", torch::ones({1}));
  }
  torch::Tensor forward(const torch::Tensor& x, const model::MicroBatch&) override {
    const bool bad = calls_++ % 3 == bad_call_;
    return x * weight_ * (bad ? INFINITY : *value_);
  }
  double* value_;
  int bad_call_;
  int calls_ = 0;
  torch::Tensor weight_;
};

}  // namespace

TEST_CASE("a global batch without a trained token names the samples of all ranks") {
  testing::run_ranks(2, [](std::shared_ptr<comm::Mesh> mesh) {
    const auto engine = testing::make_engine(testing::make_chain(), chain_config(6, 1, 2), mesh);
    Untrained loader(mesh->rank());
    CHECK_THROWS_WITH_AS(
        engine->train_batch(loader),
        "the global batch of step 1 has no trained token (samples 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, "
        "10, 11)",
        Error);
  });
}

TEST_CASE(
    "a non-finite gradient on one rank skips the step on all and leaves everything as it was") {
  testing::run_ranks(2, [](std::shared_ptr<comm::Mesh> mesh) {
    double factor = 1;
    model::Blocks blocks = testing::make_chain();
    blocks.insert(blocks.begin() + 2, std::make_shared<Factor>(&factor));
    const auto engine = testing::make_engine(blocks, chain_config(6, 1, 2), mesh);
    testing::ChainLoader loader({.rank = mesh->rank(), .world_size = 2});
    CHECK_FALSE(engine->train_batch(loader).skipped);
    const torch::Tensor before = engine->params().shard(1).clone();
    factor = mesh->rank() == 1 ? INFINITY : 1;
    const StepStats skipped = engine->train_batch(loader);
    CHECK(skipped.skipped);
    CHECK(skipped.step == 2);
    CHECK(skipped.skipped_total == 1);
    CHECK_FALSE(std::isfinite(skipped.grad_norm));
    CHECK(at::equal(engine->params().shard(1), before));
    factor = 1;
    const StepStats next = engine->train_batch(loader);
    CHECK_FALSE(next.skipped);
    CHECK(next.skipped_total == 1);
    CHECK_FALSE(at::equal(engine->params().shard(1), before));
  });
}

TEST_CASE("ten skipped steps in a row end the run and name block and parameter") {
  testing::run_ranks(2, [](std::shared_ptr<comm::Mesh> mesh) {
    double factor = NAN;
    model::Blocks blocks = testing::make_chain();
    blocks.insert(blocks.begin() + 2, std::make_shared<Factor>(&factor));
    const auto engine = testing::make_engine(blocks, chain_config(6, 1, 2), mesh);
    testing::ChainLoader loader({.rank = mesh->rank(), .world_size = 2});
    for (int step = 1; step < 10; ++step) {
      const StepStats stats = engine->train_batch(loader);
      CHECK(stats.skipped);
      CHECK(stats.failure.empty());
    }
    const std::string message = engine->train_batch(loader).failure;
    CHECK_THROWS_WITH_AS(engine->train_batch(loader), message.c_str(), Error);
    CHECK(message.find("10 steps in a row") != std::string::npos);
    CHECK(message.find("since step 1") != std::string::npos);
    CHECK(message.find("block head, parameter head.weight") != std::string::npos);
    CHECK(message.find("output of block factor is the first that is not finite") !=
          std::string::npos);
  });
}

TEST_CASE("skips that are not in a row do not end the run") {
  testing::run_ranks(1, [](std::shared_ptr<comm::Mesh> mesh) {
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

TEST_CASE("the gradient norm is the one before clipping, and clipping 0 is none") {
  testing::run_ranks(1, [](std::shared_ptr<comm::Mesh> mesh) {
    const auto first_step = [&](double clipping) {
      configs::Config config = chain_config(12, 1, 1);
      config.gradient_clipping = clipping;
      const auto engine = testing::make_engine(testing::make_chain(), config, mesh);
      testing::ChainLoader loader({});
      return engine->train_batch(loader).grad_norm;
    };
    const double norm = first_step(0);
    CHECK(norm > 0.1);
    CHECK(first_step(0.01) == norm);
  });
}

TEST_CASE("a fp16 run halves its scale at overflows and skips those steps only") {
  testing::run_ranks(2, [](std::shared_ptr<comm::Mesh> mesh) {
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

TEST_CASE("evaluation changes nothing and equals the loss of the next step") {
  testing::run_ranks(2, [](std::shared_ptr<comm::Mesh> mesh) {
    for (const int stage : {0, 3}) {
      configs::Config config = chain_config(3, 2, 2);
      config.zero.stage = stage;
      const auto engine = testing::make_engine(testing::make_chain({.tied = true}), config, mesh);
      const testing::ChainLoader::Split split{
          .accumulation = 2, .rank = mesh->rank(), .world_size = 2};
      testing::ChainLoader evaluated(split), trained(split);
      const EvalStats eval = engine->eval_batch(evaluated, 2);
      CHECK(engine->params().live_elements() == 0);
      const StepStats step = engine->train_batch(trained);
      CHECK(eval.trained_tokens == step.trained_tokens);
      CHECK(eval.loss == doctest::Approx(step.loss).epsilon(1e-6));
    }
  });
}

TEST_CASE("ranks that evaluate different numbers of micro-batches are told so at once") {
  testing::run_ranks(2, [](std::shared_ptr<comm::Mesh> mesh) {
    const auto engine = testing::make_engine(testing::make_chain(), chain_config(6, 1, 2), mesh);
    testing::ChainLoader loader({.rank = mesh->rank(), .world_size = 2});
    CHECK_THROWS_WITH_AS(engine->eval_batch(loader, 1 + mesh->rank()),
                         doctest::Contains("different numbers of micro-batches, from 1 to 2"),
                         Error);
  });
}

TEST_CASE("the block that made a value that is not finite is found in any micro-batch") {
  testing::run_ranks(1, [](std::shared_ptr<comm::Mesh> mesh) {
    double factor = 1;
    model::Blocks blocks = testing::make_chain();
    blocks.insert(blocks.begin() + 2, std::make_shared<Factor>(&factor, /*bad_call_of_three=*/1));
    const auto engine = testing::make_engine(blocks, chain_config(4, 3, 1), mesh);
    testing::ChainLoader loader({.accumulation = 3});
    std::string message;
    for (int step = 0; step < 10; ++step) message = engine->train_batch(loader).failure;
    CHECK(message.find("output of block factor is the first that is not finite") !=
          std::string::npos);
  });
}

TEST_CASE("after a step of stage 3 a rank holds only its shard") {
  testing::run_ranks(3, [](std::shared_ptr<comm::Mesh> mesh) {
    configs::Config config = chain_config(4, 1, 3);
    config.zero.stage = 3;
    const auto engine = testing::make_engine(testing::make_chain(), config, mesh);
    testing::ChainLoader loader({.rank = mesh->rank(), .world_size = 3});
    for (int step = 0; step < 2; ++step) {
      engine->train_batch(loader);
      CHECK(engine->params().live_elements() == 0);
      for (const zero::Unit& unit : engine->plan().units) {
        CHECK(unit.params.front().storage().data() == nullptr);
      }
    }
  });
}

TEST_CASE("frozen parameters stay as they are in every stage while the others train") {
  for (const int stage : {0, 1, 2, 3}) {
    testing::run_ranks(2, [&](std::shared_ptr<comm::Mesh> mesh) {
      configs::Config config = chain_config(6, 1, 2);
      config.zero.stage = stage;
      const auto engine =
          testing::make_engine(testing::make_chain({.hidden = 40, .frozen = true}), config, mesh);
      std::vector<torch::Tensor> before;
      for (size_t unit = 0; unit < engine->plan().units.size(); ++unit) {
        before.push_back(engine->params().shard(unit).clone());
      }
      testing::ChainLoader loader({.rank = mesh->rank(), .world_size = 2});
      const double first = engine->train_batch(loader).loss;
      double last = first;
      for (int step = 0; step < 15; ++step) last = engine->train_batch(loader).loss;
      CHECK(last < first);
      for (size_t unit = 0; unit < before.size(); ++unit) {
        CHECK(at::equal(before[unit], engine->params().shard(unit)) ==
              !engine->plan().units[unit].trainable);
      }
    });
  }
}

}  // namespace zeroth::engine
