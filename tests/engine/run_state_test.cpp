#include "engine/state/run_state.h"

#include <ATen/ATen.h>
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <cmath>

#include "base/error.h"
#include "tests/engine/chain_config.h"
#include "tests/engine/saved_run.h"
#include "tests/engine/split_chain.h"
#include "tests/support/chain.h"
#include "tests/support/ranks.h"
#include "tests/support/temp_folder.h"

namespace zeroth::engine::run_state_test {
namespace {

struct Losses {
  std::vector<double> losses, norms;
  bool operator==(const Losses&) const = default;
};

struct StepSpan {
  int first = 0;  // step, from 0
  int steps = 0;
};

// Trains `stretch` of a run that begins from `from`, if there is one, and saves into `to`.
Losses train(const configs::Config& config, int ranks, const StepSpan& span, SavedRun* from,
             SavedRun* to) {
  Losses seen;
  testing::run_ranks(ranks, [&](std::shared_ptr<comm::DeviceMesh> mesh) {
    const auto engine = testing::make_engine(testing::make_chain({.frozen = true}), config, mesh);
    if (from != nullptr) {
      SavedRun::Source source(*from);
      engine->load_states(source, from->counters);
    }
    testing::ChainLoader loader({.global_batch = config.batch.train_batch_size,
                                 .accumulation = config.batch.accumulation_steps,
                                 .rank = mesh->rank(),
                                 .world_size = ranks});
    for (int64_t i = 0; i < span.first * config.batch.accumulation_steps; ++i) loader.next();
    for (int i = 0; i < span.steps; ++i) {
      const StepStats stats = engine->train_batch(loader);
      CHECK(stats.step == span.first + i + 1);
      if (mesh->rank() != 0) continue;
      seen.losses.push_back(stats.loss);
      seen.norms.push_back(std::isnan(stats.grad_norm) ? -1 : stats.grad_norm);  // equals itself
    }
    SavedRun::Sink sink(*to);
    engine->save_states(sink);
    if (mesh->rank() == 0) to->counters = engine->counters();
  });
  to->check_complete();
  return seen;
}

void append(Losses& losses, const Losses& more) {
  losses.losses.insert(losses.losses.end(), more.losses.begin(), more.losses.end());
  losses.norms.insert(losses.norms.end(), more.norms.begin(), more.norms.end());
}

// A schedule that is under way, and clipping: what hangs on counters.
configs::Config config_of(int stage, int ranks, int64_t accumulation = 1) {
  configs::Config config = chain_config(12 / ranks / accumulation, accumulation, ranks);
  config.zero.stage = stage;
  config.gradient_clipping = 0.5;
  config.optimizer.weight_decay = 0.1;
  config.scheduler.kind = configs::SchedulerConfig::Kind::kHuggingFace;
  config.scheduler.hf = {
      .type = configs::HfSchedule::Type::kLinear, .warmup_steps = 3, .total_steps = 8};
  return config;
}

// A run of six steps, and one that ends after three and goes on in another engine.
void check_goes_on(const configs::Config& config, int ranks) {
  SavedRun whole, half, end;
  const Losses expected = train(config, ranks, {0, 6}, nullptr, &whole);
  Losses seen = train(config, ranks, {0, 3}, nullptr, &half);
  append(seen, train(config, ranks, {3, 3}, &half, &end));
  CHECK(seen == expected);
  CHECK(end == whole);
}

// What one rank has after some steps of the chain that ranks of axis tensor can share.
void train_shared_chain(SavedRun& to) {
  run_split_chain(comm::MeshShape(), config_of(0, 1), [&](Engine& engine, comm::DeviceMesh&) {
    testing::ChainLoader loader({.rank = 0, .world_size = 1});
    for (int i = 0; i < 3; ++i) engine.train_batch(loader);
    SavedRun::Sink sink(to);
    engine.save_states(sink);
  });
  to.check_complete();
}

// Takes them over on other ranks and saves them again.
void pass_on(SavedRun& from, SavedRun& to, int stage, const comm::MeshShape& shape) {
  const configs::Config config = config_of(stage, shape[comm::MeshDim::kDp]);
  run_split_chain(shape, config, [&](Engine& engine, comm::DeviceMesh&) {
    SavedRun::Source source(from);
    engine.load_states(source, {});
    SavedRun::Sink sink(to);
    engine.save_states(sink);
  });
  to.check_complete();
}

}  // namespace

TEST_CASE("states go from one rank to ranks that share layers, and back, bit by bit the same") {
  SavedRun one;
  train_shared_chain(one);
  for (const int stage : {0, 1, 2, 3}) {
    for (const auto& [data, tensor] : {std::pair{2, 2}, {1, 4}, {2, 4}}) {
      CAPTURE(stage);
      CAPTURE(tensor);
      SavedRun shared, back;
      pass_on(one, shared, stage,
              comm::MeshShape::data_parallel(data).with(comm::MeshDim::kTp, tensor));
      CHECK(shared == one);
      pass_on(shared, back, 3 - stage, comm::MeshShape::data_parallel(3));
      CHECK(back == one);
    }
  }
}

TEST_CASE("a run that takes over another's states goes on with the same bits, at every stage") {
  for (int stage = 0; stage <= 3; ++stage) {
    for (const int ranks : {1, 2, 3}) {
      CAPTURE(stage);
      CAPTURE(ranks);
      check_goes_on(config_of(stage, ranks), ranks);
    }
  }
}

TEST_CASE(
    "... with accumulation and in every precision, also where masters and states rest in bf16") {
  for (const auto precision : {configs::Precision::kBf16, configs::Precision::kFp16}) {
    for (const int stage : {0, 2, 3}) {
      CAPTURE(stage);
      configs::Config config = config_of(stage, 2, /*accumulation=*/2);
      config.precision = precision;
      config.loss_scale.initial_scale_power = 4;
      check_goes_on(config, 2);
    }
  }
  for (const bool states : {false, true}) {
    configs::Config config = config_of(2, 2);
    config.precision = configs::Precision::kBf16;
    config.zero.offload_optimizer.device = configs::OffloadDevice::kCpu;
    config.optimizer.bf16_masters = true;
    config.optimizer.bf16_states = states;
    check_goes_on(config, 2);
  }
}

TEST_CASE("... from any resting place") {
  const TempFolder directory;
  for (const auto place : {configs::OffloadDevice::kCpu, configs::OffloadDevice::kNvme}) {
    configs::Config config = config_of(3, 2);
    config.zero.offload_optimizer.device = place;
    config.zero.offload_optimizer.nvme_path = directory.path().string();
    config.zero.offload_param.device = place;
    config.zero.offload_param.nvme_path = directory.path().string();
    check_goes_on(config, 2);
  }
}

TEST_CASE("... just behind a step that a dynamic loss scale has skipped") {
  configs::Config config = config_of(2, 2);
  config.precision = configs::Precision::kFp16;
  config.loss_scale.initial_scale_power = 26;
  config.loss_scale.hysteresis = 2;
  SavedRun half;
  train(config, 2, {0, 3}, nullptr, &half);
  REQUIRE(half.counters.applied_updates < half.counters.steps);
  REQUIRE(half.counters.skips.in_a_row > 0);
  check_goes_on(config, 2);
}

TEST_CASE("... with a rate that follows evaluations") {
  configs::Config config = config_of(1, 1);
  config.scheduler.hf = {.type = configs::HfSchedule::Type::kReduceOnPlateau,
                         .plateau = {.patience = 0}};
  testing::run_ranks(1, [&](std::shared_ptr<comm::DeviceMesh> mesh) {
    const auto first = testing::make_engine(testing::make_chain(), config, mesh);
    first->evaluated(1);
    first->evaluated(2);  // no better
    const RunCounters counters = first->counters();
    SavedRun saved;
    SavedRun::Sink sink(saved);
    first->save_states(sink);
    const auto second = testing::make_engine(testing::make_chain(), config, mesh);
    SavedRun::Source source(saved);
    second->load_states(source, counters);
    CHECK(second->counters() == counters);
    testing::ChainLoader loader({.rank = 0, .world_size = 1});
    CHECK(second->train_batch(loader).lr == doctest::Approx(0.1 * config.optimizer.lr));
  });
}

TEST_CASE("every optimizer's states are saved under their names") {
  using Kind = configs::OptimizerConfig::Kind;
  for (const Kind kind : {Kind::kAdam, Kind::kLion, Kind::kSgd, Kind::kAdagrad, Kind::kLamb}) {
    configs::Config config = config_of(2, 2);
    config.optimizer.kind = kind;
    config.optimizer.momentum = 0.9;
    config.optimizer.initial_accumulator_value = 0.1;
    check_goes_on(config, 2);
  }
}

TEST_CASE("states go on at another stage, number of ranks and resting place, bit by bit the same") {
  SavedRun four, one, three;
  train(config_of(3, 4), 4, {0, 3}, nullptr, &four);
  configs::Config config = config_of(0, 1);
  config.zero.offload_optimizer.device = configs::OffloadDevice::kCpu;
  train(config, 1, {3, 0}, &four, &one);
  CHECK(one == four);
  train(config_of(1, 3), 3, {3, 0}, &one, &three);
  CHECK(three == four);

  SavedRun whole, end;
  Losses expected = train(config_of(3, 4), 4, {0, 6}, nullptr, &whole);
  const Losses seen = train(config_of(1, 3), 3, {3, 3}, &three, &end);
  for (size_t i = 0; i < 3; ++i) {
    CHECK(seen.losses[i] == doctest::Approx(expected.losses[i + 3]).epsilon(2e-5));
  }
}

TEST_CASE("a run in fp32 takes the masters and states of one in bf16, bit by bit") {
  SavedRun half, full, back;
  configs::Config bf16 = config_of(2, 2);
  bf16.precision = configs::Precision::kBf16;
  train(bf16, 2, {0, 3}, nullptr, &half);
  train(config_of(3, 2), 2, {3, 0}, &half, &full);
  CHECK(full == half);
  train(bf16, 2, {3, 0}, &full, &back);
  CHECK(back == half);
}

TEST_CASE("a state that was not saved is named") {
  SavedRun sgd, adam;
  configs::Config config = config_of(2, 1);
  config.optimizer.kind = configs::OptimizerConfig::Kind::kSgd;
  train(config, 1, {0, 1}, nullptr, &sgd);
  CHECK_THROWS_WITH_AS(train(config_of(2, 1), 1, {1, 1}, &sgd, &adam),
                       "nothing is saved of embedding.weight:exp_avg", Error);
}

}  // namespace zeroth::engine::run_state_test
