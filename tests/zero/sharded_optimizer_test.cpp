#include "zero/sharded_optimizer.h"

#include <ATen/ATen.h>
#include <doctest/doctest.h>

#include <map>
#include <vector>

#include "base/error.h"
#include "engine/engine_impl.h"
#include "engine/memory/memory_estimate.h"
#include "tests/support/chain.h"
#include "tests/support/ranks.h"
#include "tests/support/read_state.h"
#include "tests/zero/fake_store.h"
#include "zero/block_params.h"

namespace zeroth::zero::sharded_optimizer_test {

TEST_CASE("after every step each working weight equals its master rounded") {
  for (const configs::Precision precision :
       {configs::Precision::kBf16, configs::Precision::kFp16}) {
    for (const int stage : {0, 1, 2, 3}) {
      testing::run_ranks(2, [&](std::shared_ptr<comm::DeviceMesh> mesh) {
        configs::Config config;
        config.batch = {.train_batch_size = 12, .micro_batch_size = 6, .accumulation_steps = 1};
        config.precision = precision;
        config.loss_scale.static_scale = 16;
        config.zero.stage = stage;
        config.zero.param_persistence_threshold_elements = 0;
        const auto engine = testing::make_engine(testing::make_chain(), config, mesh);
        testing::ChainLoader loader({.rank = mesh->rank(), .world_size = 2});
        for (int step = 0; step < 3; ++step) {
          CHECK_FALSE(engine->train_batch(loader).skipped);
          for (size_t unit = 0; unit < engine->impl().plan().units.size(); ++unit) {
            const torch::Tensor working = testing::shard_of(*engine, unit);
            CHECK(at::equal(
                working,
                testing::read_master(engine->impl().optimizer(), unit).to(working.scalar_type())));
          }
        }
      });
    }
  }
}

namespace {

using Kind = configs::OptimizerConfig::Kind;

// This rank's masters and states after five steps of a chain whose sizes fill no vector.
std::vector<torch::Tensor> after_training(const configs::Config& config,
                                          const std::shared_ptr<comm::DeviceMesh>& mesh) {
  const auto engine =
      testing::make_engine(testing::make_chain({.vocab = 19, .hidden = 37}), config, mesh);
  testing::ChainLoader loader({.rank = mesh->rank(), .world_size = mesh->world_size()});
  for (int step = 0; step < 5; ++step) CHECK_FALSE(engine->train_batch(loader).skipped);
  std::vector<torch::Tensor> all;
  for (size_t unit = 0; unit < engine->impl().plan().units.size(); ++unit) {
    all.push_back(testing::read_master(engine->impl().optimizer(), unit));
    all.push_back(testing::read_state(engine->impl().optimizer(), unit, 1));
  }
  return all;
}

}  // namespace

TEST_CASE("tiles of any size give the bits of a whole shard, with and without decay groups") {
  for (const Kind kind : {Kind::kAdamW, Kind::kAdam, Kind::kLion, Kind::kSgd, Kind::kAdagrad,
                          Kind::kLamb, Kind::kAdamW8bit}) {
    for (const configs::Precision precision :
         {configs::Precision::kFp32, configs::Precision::kBf16, configs::Precision::kFp16}) {
      for (const bool no_decay : {false, true}) {
        CAPTURE(static_cast<int>(kind));
        CAPTURE(static_cast<int>(precision));
        CAPTURE(no_decay);
        testing::run_ranks(2, [&](std::shared_ptr<comm::DeviceMesh> mesh) {
          configs::Config config;
          config.batch = {.train_batch_size = 12, .micro_batch_size = 6, .accumulation_steps = 1};
          config.precision = precision;
          config.loss_scale.static_scale = 16;
          config.zero.stage = 2;
          config.optimizer = {.kind = kind,
                              .lr = 1e-3,
                              .weight_decay = 0.1,
                              .no_decay = no_decay,
                              .momentum = 0.9,
                              .initial_accumulator_value = 0.1,
                              .min_8bit_size = 800};
          const std::vector<torch::Tensor> whole = after_training(config, mesh);
          for (const int64_t tile : {1, 64, 200, 1'000}) {
            config.zero.sub_group_size_elements = tile;
            const std::vector<torch::Tensor> tiled = after_training(config, mesh);
            for (size_t i = 0; i < whole.size(); ++i) CHECK(at::equal(tiled[i], whole[i]));
          }
        });
      }
    }
  }
}

TEST_CASE("decay that leaves norms and biases out shrinks matrices only") {
  for (const int stage : {0, 3}) {
    testing::run_ranks(2, [&](std::shared_ptr<comm::DeviceMesh> mesh) {
      const auto bias_and_matrix = [&](double decay, bool no_decay) {
        configs::Config config;
        config.batch = {.train_batch_size = 12, .micro_batch_size = 6, .accumulation_steps = 1};
        config.zero.stage = stage;
        config.optimizer.weight_decay = decay;
        config.optimizer.no_decay = no_decay;
        const auto engine = testing::make_engine(testing::make_chain({.hidden = 64}), config, mesh);
        const engine::DecayCounts counts = engine->decay_counts();
        CHECK(counts.decayed + counts.not_decayed == engine->num_parameters());
        CHECK(counts.not_decayed == (no_decay ? 3 * 64 : 0));
        testing::ChainLoader loader({.rank = mesh->rank(), .world_size = 2});
        engine->train_batch(loader);
        const zero::Lease lease = engine->impl().params().gather(1);
        const std::vector<torch::Tensor>& layer = engine->impl().plan().units[1].params;
        return std::pair(layer[1].clone(), layer[0].clone());
      };
      const auto [bias, matrix] = bias_and_matrix(0, false);
      const auto [free_bias, decayed_matrix] = bias_and_matrix(0.5, true);
      const auto [decayed_bias, same_matrix] = bias_and_matrix(0.5, false);
      CHECK(at::equal(free_bias, bias));
      CHECK_FALSE(at::equal(decayed_bias, bias));
      CHECK_FALSE(at::equal(decayed_matrix, matrix));
      CHECK(at::equal(decayed_matrix, same_matrix));
    });
  }
}

TEST_CASE("a tile never gets an update twice: one that failed in between is not begun again") {
  testing::run_ranks(1, [](std::shared_ptr<comm::DeviceMesh> mesh) {
    const model::Blocks blocks = testing::make_chain({.hidden = 64});
    const UnitPlan plan = plan_units(blocks, *mesh);
    ParamStore shares(plan, *mesh, torch::kCPU, {});
    const auto grads = make_grad_reducer(ReducerKind::kFull, plan, *mesh, {});
    const configs::OptimizerConfig config = {.lr = 0.5, .weight_decay = 1};
    const auto rule = optim::make_update_rule(config, torch::kCPU);
    FakeStore store;
    ShardedOptimizer optimizer(
        plan, shares, *grads,
        std::vector(plan.units.size(), OptimizerPlacement{&store, rule.get()}),
        {.tile_elements = 256});
    BlockParams params(plan, shares, optimizer, {.update_before_use = true});
    for (size_t unit = 0; unit < plan.units.size(); ++unit) {
      optimizer.states().write(unit, 0, torch::ones({shares.range(unit).size()}));
    }
    (void)grads->finish();  // zeros
    params.step(optim::default_step(config, 1));

    store.fails_in = 2;  // two states per tile: the second tile's first
    CHECK_THROWS_AS((void)params.gather(0), Error);
    CHECK_THROWS_WITH_AS((void)params.gather(0),
                         doctest::Contains("an error interrupted the update of"), Error);
    CHECK_THROWS_AS((void)testing::read_master(optimizer, 0), Error);
    CHECK_THROWS_AS((void)testing::read_master(optimizer, 1), Error);
  });
}

namespace {

// RecordingObserver what it is asked for, and holds it against what the optimizer still has in
// place.
class RecordingObserver final : public OverwriteObserver {
 public:
  explicit RecordingObserver(ShardedOptimizer& optimizer) : optimizer_(optimizer) {}
  void before_update(size_t unit, const Range& tile,
                     const std::vector<torch::Tensor>& arrays) override {
    asked[unit].push_back(tile);
    REQUIRE(arrays.size() == optimizer_.states().arrays(unit).size());
    for (size_t i = 0; i < arrays.size(); ++i) {
      const OptimizerStates::Array array = optimizer_.states().arrays(unit)[i];
      CHECK((arrays[i].scalar_type() == array.dtype));
      const Range entries = array.entries(tile);
      const torch::Tensor held =
          optimizer_.states().in_place(unit, i).narrow(0, entries.begin, entries.size());
      CHECK(at::equal(arrays[i], held));
      if (values[unit].size() <= i) values[unit].push_back({});
      if (tile.begin == 0) values[unit][i] = at::zeros({0}, held.options());
      values[unit][i] = at::cat({values[unit][i], held});
    }
  }
  std::map<size_t, std::vector<Range>> asked;
  std::map<size_t, std::vector<torch::Tensor>> values;

 private:
  ShardedOptimizer& optimizer_;
};

}  // namespace

TEST_CASE("a watch sees each tile before it changes: once, and twice where there is a norm pass") {
  for (const Kind kind : {Kind::kAdam, Kind::kSgd, Kind::kLamb, Kind::kAdamW8bit}) {
    for (const auto precision : {configs::Precision::kFp32, configs::Precision::kBf16}) {
      for (const int stage : {0, 2, 3}) {
        testing::run_ranks(2, [&](std::shared_ptr<comm::DeviceMesh> mesh) {
          configs::Config config;
          config.batch = {.train_batch_size = 12, .micro_batch_size = 6, .accumulation_steps = 1};
          config.precision = precision;
          config.optimizer.kind = kind;
          config.optimizer.min_8bit_size = 390;
          config.zero.stage = stage;
          config.zero.sub_group_size_elements = 128;
          const auto engine =
              testing::make_engine(testing::make_chain({.hidden = 20}), config, mesh);
          ShardedOptimizer& optimizer = engine->impl().optimizer();
          testing::ChainLoader loader({.rank = mesh->rank(), .world_size = 2});
          engine->train_batch(loader);
          std::vector<std::vector<torch::Tensor>> before(engine->impl().plan().units.size());
          for (size_t unit = 0; unit < before.size(); ++unit) {
            for (size_t i = 0; i < optimizer.states().arrays(unit).size(); ++i) {
              const torch::Dtype dtype = optimizer.states().arrays(unit)[i].dtype;
              before[unit].push_back(testing::read_state(optimizer, unit, i).to(dtype));
            }
          }
          RecordingObserver notes(optimizer);
          optimizer.set_observer(&notes);
          engine->train_batch(loader);
          optimizer.set_observer(nullptr);
          engine->train_batch(loader);
          for (size_t unit = 0; unit < before.size(); ++unit) {
            std::vector<Range> expected = optimizer.states().tiles(unit);
            CHECK(expected.back().end == engine->impl().store().range(unit).size());
            if (kind == Kind::kLamb) {
              expected.insert(expected.end(), expected.begin(), expected.end());
              CHECK((notes.asked[unit] == expected));
              continue;
            }
            CHECK((notes.asked[unit] == expected));
            for (size_t i = 0; i < before[unit].size(); ++i) {
              CHECK(at::equal(notes.values[unit][i], before[unit][i]));
            }
          }
        });
      }
    }
  }
}

}  // namespace zeroth::zero::sharded_optimizer_test
