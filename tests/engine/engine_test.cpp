#include "engine/engine_impl.h"

#include <ATen/ATen.h>
#include <doctest/doctest.h>
#include <torch/nn/modules/dropout.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/error.h"
#include "tests/engine/chain_config.h"
#include "tests/support/chain.h"
#include "tests/support/ranks.h"

namespace zeroth::engine::engine_test {
namespace {

// A loader of which no target is trained.
class NoLabelsLoader final : public DataLoader {
 public:
  explicit NoLabelsLoader(int rank) : inner_({.rank = rank, .world_size = 2}) {}
  model::MicroBatch next() override {
    model::MicroBatch batch = inner_.next();
    batch.targets.fill_(model::kIgnoreIndex);
    return batch;
  }

 private:
  testing::ChainLoader inner_;
};

// The batch of the first step again and again: for `wides` steps with its rows three times, then
// with only each row's first target trained.
class Narrowing final : public DataLoader {
 public:
  Narrowing(int rank, int wides) : rank_(rank), wides_(wides) {}
  model::MicroBatch next() override {
    model::MicroBatch batch = testing::ChainLoader({.rank = rank_, .world_size = 2}).next();
    if (wides_-- > 0) {
      batch.tokens = batch.tokens.repeat({3, 1});
      batch.targets = batch.targets.repeat({3, 1});
    } else {
      batch.targets.slice(1, 1).fill_(model::kIgnoreIndex);
    }
    return batch;
  }

 private:
  int rank_, wides_;
};

// Counts the micro-batches whose tokens are in memory.
class Alive final : public DataLoader {
 public:
  explicit Alive(const testing::ChainLoader::Split& split) : inner_(split) {}
  model::MicroBatch next() override {
    model::MicroBatch batch = inner_.next();
    batch.tokens = counted(batch.tokens);
    max_alive_ = std::max(max_alive_, ++*alive_);
    ++drawn_;
    return batch;
  }
  int alive() const { return *alive_; }
  int max_alive() const { return max_alive_; }
  int drawn() const { return drawn_; }

 private:
  torch::Tensor counted(const torch::Tensor& tokens) {
    const torch::Tensor held = tokens.contiguous();
    return torch::from_blob(
        held.data_ptr(), held.sizes(), [held, alive = alive_](void*) { --*alive; }, held.options());
  }

  testing::ChainLoader inner_;
  std::shared_ptr<int> alive_ = std::make_shared<int>(0);
  int max_alive_ = 0, drawn_ = 0;
};

// Micro-batches of one row, then of two, and so on up to four; some loaders can tell how many.
class Growing final : public DataLoader {
 public:
  explicit Growing(bool counts) : counts_(counts) {}
  model::MicroBatch next() override {
    model::MicroBatch batch = chain_.next();
    const int64_t rows = 1 + drawn_++ % 4;
    batch.tokens = batch.tokens.slice(0, 0, rows).contiguous();
    batch.targets = batch.targets.slice(0, 0, rows).contiguous();
    batch.samples.resize(static_cast<size_t>(rows));
    batch.sample_seeds.resize(static_cast<size_t>(rows));
    return batch;
  }
  std::optional<int64_t> count_positions(int64_t micro_batches) const override {
    if (!counts_) return std::nullopt;
    CHECK(micro_batches == 4);
    return (1 + 2 + 3 + 4) * 5;
  }

 private:
  bool counts_;
  testing::ChainLoader chain_{{.global_batch = 16, .accumulation = 4}};
  int64_t drawn_ = 0;
};

// A layer of a user who takes torch's own dropout.
struct Dropping final : model::Block {
  Dropping() : Block("dropping") {
    inner = register_module("inner", torch::nn::Dropout(0.5));
    asleep = register_module("asleep", torch::nn::Dropout(0.5));
    asleep->eval();
  }
  torch::Tensor forward(const torch::Tensor& x, const model::MicroBatch&) override {
    return asleep->forward(inner->forward(x));
  }
  torch::nn::Dropout inner{nullptr}, asleep{nullptr};
};

}  // namespace

TEST_CASE("a global batch without a trained token names the samples of all ranks") {
  testing::run_ranks(2, [](std::shared_ptr<comm::DeviceMesh> mesh) {
    const auto engine = testing::make_engine(testing::make_chain(), chain_config(6, 1, 2), mesh);
    NoLabelsLoader loader(mesh->rank());
    CHECK_THROWS_WITH_AS(
        engine->train_batch(loader),
        "the global batch of step 1 has no label tokens (samples 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, "
        "10, 11)",
        Error);
  });
}

TEST_CASE("a step's mean is over its own trained tokens, with the same bits whatever came first") {
  using configs::LossMean;
  testing::run_ranks(2, [](std::shared_ptr<comm::DeviceMesh> mesh) {
    for (const LossMean mean : {LossMean::kToken, LossMean::kMicroBatch}) {
      configs::Config config = chain_config(6, 1, 2);
      config.optimizer.lr = 0;
      config.loss_mean = mean;
      const auto last_of = [&](int wides) {
        const auto engine = testing::make_engine(testing::make_chain(), config, mesh);
        Narrowing loader(mesh->rank(), wides);
        for (int step = 0; step < wides; ++step) engine->train_batch(loader);
        return engine->train_batch(loader);
      };
      const StepStats first = last_of(0), later = last_of(2);
      CHECK(later.num_label_tokens == first.num_label_tokens);
      CHECK(later.num_label_tokens <= 12);
      CHECK(later.loss == first.loss);
      CHECK(later.grad_norm == first.grad_norm);
    }
  });
}

TEST_CASE("a step and an evaluation hold one micro-batch at a time, however many they have") {
  for (const int stage : {0, 2, 3}) {
    CAPTURE(stage);
    testing::run_ranks(2, [&](std::shared_ptr<comm::DeviceMesh> mesh) {
      constexpr int kMicroBatches = 50;
      configs::Config config = chain_config(1, kMicroBatches, 2);
      config.zero.stage = stage;
      const auto engine = testing::make_engine(testing::make_chain(), config, mesh);
      Alive loader({.global_batch = 2 * kMicroBatches,
                    .accumulation = kMicroBatches,
                    .rank = mesh->rank(),
                    .world_size = 2});
      for (int step = 1; step <= 2; ++step) {
        engine->train_batch(loader);
        CHECK(loader.drawn() == step * kMicroBatches);
      }
      engine->eval_batch(loader, kMicroBatches);
      CHECK(loader.drawn() == 3 * kMicroBatches);
      CHECK(loader.alive() == 0);
      CHECK(loader.max_alive() == 1);
    });
  }
}

TEST_CASE("a step has the same bits whether or not its loader can count what is to come") {
  testing::run_ranks(1, [](std::shared_ptr<comm::DeviceMesh> mesh) {
    for (const auto precision : {configs::Precision::kFp32, configs::Precision::kBf16}) {
      const auto train = [&](bool counts) {
        configs::Config config = chain_config(4, 4, 1);
        config.precision = precision;
        const auto engine = testing::make_engine(testing::make_chain(), config, mesh);
        Growing loader(counts);
        std::vector<double> numbers;
        for (int step = 0; step < 3; ++step) {
          const StepStats stats = engine->train_batch(loader);
          numbers.push_back(stats.loss);
          numbers.push_back(stats.grad_norm);
        }
        return std::pair(numbers, engine->counters().nominal_divisor);
      };
      const auto [counted, divisor] = train(true);
      const auto [guessed, other_divisor] = train(false);
      CHECK(counted == guessed);
      CHECK(divisor == 64);
      CHECK(other_divisor == 32);
    }
  });
}

TEST_CASE("ranks count a step's tokens in the collective of its loss") {
  testing::run_ranks(2, [](std::shared_ptr<comm::DeviceMesh> mesh) {
    configs::Config config = chain_config(6, 1, 2);
    config.zero.ignore_unused_parameters = false;
    const auto engine = testing::make_engine(testing::make_chain(), config, mesh);
    testing::ChainLoader loader({.rank = mesh->rank(), .world_size = 2});
    const int64_t first = engine->train_batch(loader).comm.collectives;
    const auto reductions = static_cast<int64_t>(engine->impl().plan().units.size());
    CHECK(engine->train_batch(loader).comm.collectives == reductions + 1);
    CHECK(first == reductions + 2);  // and the divisor
  });
}

TEST_CASE("the gradient norm is the one before clipping, and clipping 0 is none") {
  testing::run_ranks(1, [](std::shared_ptr<comm::DeviceMesh> mesh) {
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

TEST_CASE("evaluation changes nothing and equals the loss of the next step") {
  testing::run_ranks(2, [](std::shared_ptr<comm::DeviceMesh> mesh) {
    for (const int stage : {0, 3}) {
      configs::Config config = chain_config(3, 2, 2);
      config.zero.stage = stage;
      const auto engine = testing::make_engine(testing::make_chain({.tied = true}), config, mesh);
      const testing::ChainLoader::Split split{
          .accumulation = 2, .rank = mesh->rank(), .world_size = 2};
      testing::ChainLoader evaluated(split), trained(split);
      const EvalStats eval = engine->eval_batch(evaluated, 2);
      CHECK(engine->impl().store().buffers().live_elements() == 0);
      const StepStats step = engine->train_batch(trained);
      CHECK(eval.num_label_tokens == step.num_label_tokens);
      CHECK(eval.loss == doctest::Approx(step.loss).epsilon(1e-6));
    }
  });
}

TEST_CASE("an evaluation that one rank wants to end is left by all, and the next step is as ever") {
  struct Leaving final : DataLoader {
    explicit Leaving(const testing::ChainLoader::Split& split, int calls)
        : loader(split), calls_left(calls) {}
    model::MicroBatch next() override { return loader.next(); }
    bool stop_requested() override { return calls_left-- <= 0; }
    testing::ChainLoader loader;
    int calls_left;
  };
  for (const int stage : {0, 2, 3}) {
    CAPTURE(stage);
    testing::run_ranks(2, [&](std::shared_ptr<comm::DeviceMesh> mesh) {
      const auto loss = [&](bool leaves) {
        configs::Config config = chain_config(3, 2, 2);
        config.zero.stage = stage;
        const auto engine = testing::make_engine(testing::make_chain(), config, mesh);
        const testing::ChainLoader::Split split{
            .accumulation = 2, .rank = mesh->rank(), .world_size = 2};
        testing::ChainLoader trained(split);
        engine->train_batch(trained);
        // Rank 1 at its second question, rank 0 never.
        Leaving evaluated(split, mesh->rank() == 1 ? 1 : 1'000'000);
        if (leaves) {
          const EvalStats stats = engine->eval_batch(evaluated, 1000);
          CHECK(stats.stop_requested);
          CHECK(stats.num_label_tokens == 0);
          CHECK(engine->current_operation().empty());
        }
        return engine->train_batch(trained).loss;
      };
      CHECK(loss(true) == loss(false));
    });
  }
}

TEST_CASE("torch's own dropout drops nothing in an evaluation and is as before behind it") {
  testing::run_ranks(1, [](std::shared_ptr<comm::DeviceMesh> mesh) {
    const auto loss = [&](const model::Blocks& blocks) {
      const auto engine = testing::make_engine(blocks, chain_config(12, 1, 1), mesh);
      testing::ChainLoader loader({});
      return engine->eval_batch(loader, 1).loss;
    };
    model::Blocks blocks = testing::make_chain();
    const auto dropping = std::make_shared<Dropping>();
    blocks.insert(blocks.begin() + 1, dropping);
    CHECK(loss(blocks) == loss(testing::make_chain()));
    CHECK(dropping->is_training());
    CHECK(dropping->inner->is_training());
    CHECK_FALSE(dropping->asleep->is_training());
  });
}

TEST_CASE("ranks that evaluate different numbers of micro-batches are told so at once") {
  testing::run_ranks(2, [](std::shared_ptr<comm::DeviceMesh> mesh) {
    const auto engine = testing::make_engine(testing::make_chain(), chain_config(6, 1, 2), mesh);
    testing::ChainLoader loader({.rank = mesh->rank(), .world_size = 2});
    CHECK_THROWS_WITH_AS(engine->eval_batch(loader, 1 + mesh->rank()),
                         doctest::Contains("different numbers of micro-batches, from 1 to 2"),
                         Error);
  });
}

TEST_CASE("after a step of stage 3 a rank holds only its shard") {
  testing::run_ranks(3, [](std::shared_ptr<comm::DeviceMesh> mesh) {
    configs::Config config = chain_config(4, 1, 3);
    config.zero.stage = 3;
    const auto engine = testing::make_engine(testing::make_chain(), config, mesh);
    testing::ChainLoader loader({.rank = mesh->rank(), .world_size = 3});
    for (int step = 0; step < 2; ++step) {
      engine->train_batch(loader);
      CHECK(engine->impl().store().buffers().live_elements() == 0);
      for (const zero::Unit& unit : engine->impl().plan().units) {
        CHECK(unit.params.front().storage().data() == nullptr);
      }
    }
  });
}

TEST_CASE("frozen parameters stay as they are in every stage while the others train") {
  for (const int stage : {0, 1, 2, 3}) {
    testing::run_ranks(2, [&](std::shared_ptr<comm::DeviceMesh> mesh) {
      configs::Config config = chain_config(6, 1, 2);
      config.zero.stage = stage;
      const auto engine =
          testing::make_engine(testing::make_chain({.hidden = 100, .frozen = true}), config, mesh);
      std::vector<torch::Tensor> before;
      for (size_t unit = 0; unit < engine->impl().plan().units.size(); ++unit) {
        before.push_back(testing::shard_of(*engine, unit));
      }
      testing::ChainLoader loader({.rank = mesh->rank(), .world_size = 2});
      const double first = engine->train_batch(loader).loss;
      double last = first;
      for (int step = 0; step < 15; ++step) last = engine->train_batch(loader).loss;
      CHECK(last < first);
      for (size_t unit = 0; unit < before.size(); ++unit) {
        CHECK(at::equal(before[unit], testing::shard_of(*engine, unit)) ==
              !engine->impl().plan().units[unit].trainable);
      }
    });
  }
}

TEST_CASE("parameters smaller than the world, some ranks with padding only, train as on one rank") {
  const auto losses = [](int ranks, int stage) {
    std::vector<double> result;
    testing::run_ranks(ranks, [&](std::shared_ptr<comm::DeviceMesh> mesh) {
      configs::Config config = chain_config(12 / ranks, 1, ranks);
      config.zero.stage = stage;
      const auto engine =
          testing::make_engine(testing::make_chain({.vocab = 5, .hidden = 3}), config, mesh);
      testing::ChainLoader loader({.rank = mesh->rank(), .world_size = ranks}, /*vocab=*/5);
      for (int step = 0; step < 8; ++step) {
        const double loss = engine->train_batch(loader).loss;
        if (mesh->rank() == 0) result.push_back(loss);
      }
    });
    return result;
  };
  const std::vector<double> alone = losses(1, 0);
  CHECK(alone.back() < alone.front());
  for (const int stage : {0, 1, 2, 3}) {
    for (const int ranks : {2, 4, 6}) {
      CAPTURE(stage);
      CAPTURE(ranks);
      const std::vector<double> shared = losses(ranks, stage);
      for (size_t step = 0; step < alone.size(); ++step) {
        CHECK(std::abs(shared[step] - alone[step]) < 2e-5);
      }
    }
  }
}

}  // namespace zeroth::engine::engine_test
