#include "engine/memory/memory_estimate.h"

#include <doctest/doctest.h>

#include "engine/state/snapshot.h"
#include "tests/support/chain.h"
#include "tests/support/ranks.h"

namespace zeroth::engine::memory_estimate_test {
namespace {

zero::TierBytes saved_inputs(const model::Blocks& blocks, const configs::Config& config,
                             const EstimateOptions& options) {
  return plan_memory(plan_of(blocks, config, options), config, options).saved_inputs;
}

}  // namespace

TEST_CASE("an outline says of blocks what an engine of them says, and leaves them as they are") {
  configs::Config config;
  config.zero.stage = 3;
  config.zero.param_persistence_threshold_elements = 0;
  config.optimizer.no_decay = true;
  config.batch.accumulation_steps = 3;
  config.recompute.every_nth_block = 1;
  const model::Blocks blocks = testing::make_chain({.frozen = true});
  const torch::Tensor before = blocks[1]->parameters()[0].clone();
  const MemoryEstimate known =
      estimate_memory(blocks, config, {.shape = comm::MeshShape::data_parallel(2)});
  const zero::MemoryPlan memory = plan_memory(zero::plan_units(blocks, 2), config,
                                              {.shape = comm::MeshShape::data_parallel(2)});
  CHECK(at::equal(blocks[1]->parameters()[0], before));
  testing::run_ranks(2, [&](std::shared_ptr<comm::DeviceMesh> mesh) {
    const auto engine = testing::make_engine(testing::make_chain({.frozen = true}), config, mesh);
    CHECK(engine->num_parameters() == known.num_parameters);
    CHECK(engine->decay_counts().decayed == known.decay.decayed);
    CHECK(engine->decay_counts().not_decayed == known.decay.not_decayed);
    CHECK(engine->strategy() == known.strategy);
    CHECK(engine->memory().peak() == memory.peak());
    testing::ChainLoader loader({.accumulation = 3, .rank = mesh->rank(), .world_size = 2});
    engine->train_batch(loader);
    CHECK(engine->impl().store().buffers().pooled_bytes() == memory.gathered.device);
  });
}

TEST_CASE("what a step gathers of parameters is known before the run") {
  const model::Blocks blocks = testing::make_chain();  // five
  configs::Config config;
  config.zero.param_persistence_threshold_elements = 0;
  config.zero.prefetch_bucket_elements = 0;
  const auto known = [&] {
    return estimate_memory(blocks, config, {.shape = comm::MeshShape::data_parallel(2)});
  };
  config.zero.stage = 2;
  CHECK(known().gathered_parameters == 0);
  CHECK(known().gathered_per_step == 0);
  config.zero.stage = 3;
  const int64_t all = known().gathered_parameters;
  CHECK(all >= 4 * known().num_parameters);  // with padding
  // Each block once per pass, but for the last one, whose backward follows at once.
  const int64_t last = 2 * all - known().gathered_per_step;
  CHECK(last > 0);
  config.batch.accumulation_steps = 4;
  CHECK(known().gathered_per_step < 8 * all);
  CHECK(known().gathered_per_step > 8 * (all - 2 * last));
  config.pipeline.schedule = configs::PipelineConfig::Schedule::kBreadthFirst;
  CHECK(known().gathered_per_step == 2 * all - last);
  config.pipeline = {.stages = 2};  // 1F1B: the last stage has one micro-batch after the other
  const auto per_step = [&](int64_t accumulation) {
    config.batch.accumulation_steps = accumulation;
    return estimate_memory(blocks, config,
                           {.shape = comm::MeshShape::data_parallel(2).with(comm::MeshDim::kPp, 2)})
        .gathered_per_step;
  };
  CHECK(per_step(16) - per_step(8) == per_step(24) - per_step(16));
  CHECK(per_step(24) > 2 * per_step(8));
  config.pipeline = {.schedule = configs::PipelineConfig::Schedule::kBreadthFirst};
  config.zero.prefetch_bucket_elements = 1'000'000;  // all stay
  CHECK(known().gathered_per_step == all);
}

TEST_CASE("kept inputs are those of the blocks that run again, but for the first and the last") {
  const model::Blocks blocks = testing::make_chain();  // five
  configs::Config config;
  const auto kept = [&] { return saved_inputs(blocks, config, {.row_elements = 25}).device; };
  CHECK(kept() == 0);
  config.recompute.every_nth_block = 1;
  CHECK(kept() == 300);
  config.precision = configs::Precision::kBf16;
  CHECK(kept() == 150);
  config.batch.micro_batch_size = 4;
  CHECK(kept() == 600);
  CHECK(saved_inputs(blocks, config, {.row_elements = 25, .max_rows = 3}).device == 450);
  config.recompute = {.number_checkpoints = 2};
  CHECK(kept() == 0);  // two segments: one without an input, one that is not run again
}

TEST_CASE("beside a GPU kept inputs may lie in pinned host memory, but for the last ones") {
  const model::Blocks blocks = testing::make_chain();
  configs::Config config;
  config.recompute = {.every_nth_block = 1, .cpu_checkpointing = true};
  const EstimateOptions on_gpu{.device = torch::kCUDA, .row_elements = 25};
  CHECK(saved_inputs(blocks, config, on_gpu) == zero::TierBytes{.device = 300, .pinned = 200});
  const model::Blocks more = testing::make_chain({.layers = 6});  // eight blocks
  CHECK(saved_inputs(more, config, on_gpu) == zero::TierBytes{.device = 300, .pinned = 500});
}

TEST_CASE("copies for checkpoints are counted where a run saves beside training") {
  for (const int stage : {0, 2, 3}) {
    for (const auto precision : {configs::Precision::kFp32, configs::Precision::kBf16}) {
      configs::Config config;
      config.zero.stage = stage;
      config.precision = precision;
      const model::Blocks blocks = testing::make_chain({.hidden = 64, .frozen = true});
      const zero::UnitPlan plan = zero::plan_units(blocks, 2);
      const EstimateOptions options{.shape = comm::MeshShape::data_parallel(2),
                                    .saves_beside = true};
      const zero::TierBytes saving = plan_memory(plan, config, options).saving;
      testing::run_ranks(2, [&](std::shared_ptr<comm::DeviceMesh> mesh) {
        const auto engine =
            testing::make_engine(testing::make_chain({.hidden = 64, .frozen = true}), config, mesh);
        const ShardedState held = engine->impl().sharded_state();
        const int64_t all = saving.total() - snapshot_memory(bytes_to_save(held));
        CHECK(all >= 0);
        CHECK(all < 12 * 64 * std::ssize(plan.units));  // padding
      });
      CHECK(saving.device == saving.total());
      EstimateOptions other = options;
      other.device = torch::kCUDA;
      CHECK(plan_memory(plan, config, other).saving.pinned == saving.device);
      other.saves_beside = false;
      CHECK(plan_memory(plan, config, other).saving.total() == 0);
    }
  }
}

TEST_CASE("bytes of a checkpoint's states are as many as the optimizer has, on any ranks") {
  using Kind = configs::OptimizerConfig::Kind;
  for (const Kind kind :
       {Kind::kAdamW, Kind::kLion, Kind::kAdagrad, Kind::kSgd, Kind::kAdamW8bit}) {
    for (const auto precision : {configs::Precision::kFp32, configs::Precision::kBf16}) {
      configs::Config config;
      config.optimizer.kind = kind;
      config.optimizer.min_8bit_size = 30;
      config.precision = precision;
      const model::Blocks blocks = testing::make_chain({.frozen = true});
      const int64_t known =
          estimate_memory(blocks, config, {.shape = comm::MeshShape::data_parallel(1)}).state_bytes;
      testing::run_ranks(1, [&](std::shared_ptr<comm::DeviceMesh> mesh) {
        const auto engine =
            testing::make_engine(testing::make_chain({.frozen = true}), config, mesh);
        CHECK(bytes_to_save(engine->impl().sharded_state()) == known);
      });
      CHECK(estimate_memory(blocks, config, {.shape = comm::MeshShape::data_parallel(3)})
                .state_bytes == known);
    }
  }
}

TEST_CASE("a configuration that cannot work with the blocks is refused") {
  configs::Config config;
  config.zero.stage = 3;
  config.zero.param_persistence_threshold_elements = 0;
  config.zero.max_live_elements = 1;
  CHECK_THROWS_WITH_AS(
      estimate_memory(testing::make_chain(), config, {.shape = comm::MeshShape::data_parallel(2)}),
      doctest::Contains("stage3_max_live_parameters"), std::exception);
}

}  // namespace zeroth::engine::memory_estimate_test
