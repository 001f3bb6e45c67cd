#include "zero/memory_plan.h"

#include <doctest/doctest.h>

#include <fmt/format.h>

#include <set>

#include "base/error.h"
#include "model/blocks/main_grad.h"
#include "offload/shard_store.h"
#include "optim/update_rule.h"
#include "tests/support/chain.h"
#include "tests/support/late_copies.h"
#include "tests/support/ranks.h"
#include "tests/support/read_state.h"
#include "tests/support/temp_folder.h"
#include "zero/offload_plan.h"
#include "zero/strategy.h"

namespace zeroth::zero::memory_plan_test {
namespace {

using configs::OffloadDevice;
using configs::Precision;

// The blocks of a step, forward and backward for every micro-batch.
std::vector<size_t> visits_of(size_t blocks, int64_t micros) {
  std::vector<size_t> accesses;
  for (int64_t micro = 0; micro < micros; ++micro) {
    for (size_t block = 0; block < blocks; ++block) accesses.push_back(block);
    for (size_t block = blocks; block-- > 0;) accesses.push_back(block);
  }
  return accesses;
}

StepEstimate step_of(size_t blocks, int64_t micros) {
  return {.accesses = visits_of(blocks, micros),
          .backward_order = testing::backward_order(blocks, micros)};
}

void run_step(const UnitPlan& plan, Strategy& strategy, int64_t micros) {
  const torch::NoGradGuard no_grad;
  const size_t blocks = plan.block_units.size();
  strategy.params->set_access_order(visits_of(blocks, micros));
  strategy.grads->set_backward_order(testing::backward_order(blocks, micros));
  for (int64_t micro = 0; micro < micros; ++micro) {
    for (size_t block = 0; block < blocks; ++block) {
      const Lease lease = strategy.params->gather(block);
    }
    for (size_t block = blocks; block-- > 0;) {
      const Lease lease = strategy.params->gather(block);
      strategy.grads->open(block);
      for (const size_t unit : plan.block_units[block]) {
        for (const torch::Tensor& param : plan.units[unit].params) {
          if (plan.units[unit].trainable) model::accumulate_grad(param, torch::ones_like(param));
        }
      }
      strategy.grads->add(block);
    }
  }
  strategy.grads->finish();
  strategy.params->step({});
  strategy.grads->reset();
}

// The stores of optimizer state, each once.
std::set<offload::ShardStore*> update_stores(const Strategy& strategy) {
  std::set<offload::ShardStore*> stores;
  for (const OptimizerPlacement& place : strategy.shard_stores.updates) stores.insert(place.states);
  return stores;
}

struct Case {
  int ranks;
  configs::Config config;
  testing::ChainOptions chain = {.hidden = 40};
};

// Trains two steps and holds what is allocated then against the plan.
void check_case(const Case& row) {
  testing::run_ranks(row.ranks, [&](std::shared_ptr<comm::DeviceMesh> mesh) {
    const model::Blocks blocks = testing::make_chain(row.chain);
    UnitPlan plan = plan_units(
        blocks, *mesh, {.min_coded_elements = optim::min_coded_elements(row.config.optimizer)});
    const int64_t micros = row.config.batch.accumulation_steps;
    const MemoryPlan memory =
        plan_memory(plan, row.config, torch::kCPU, step_of(blocks.size(), micros));
    Strategy strategy = make_strategy(plan, row.config, *mesh);
    for (size_t unit = 0; unit < plan.units.size(); ++unit) {
      if (plan.units[unit].trainable) {
        strategy.optimizer->states().write(unit, 0,
                                           torch::ones({strategy.store->range(unit).size()}));
      }
    }
    for (int step = 0; step < 2; ++step) run_step(plan, strategy, micros);
    const int64_t updates_in_memory = memory.masters.device + memory.states.device;
    offload::StoreBytes updates;
    for (offload::ShardStore* store : update_stores(strategy)) {
      updates.host += store->bytes().host;
      updates.file += store->bytes().file;
    }
    CHECK(memory.gathered.device == strategy.store->buffers().pooled_bytes());
    CHECK(memory.gradient_buffers.device == strategy.grads->buffer_bytes());
    CHECK(memory.gradients.device ==
          strategy.grads->persistent_bytes() - strategy.grads->buffer_bytes());
    CHECK(memory.masters.file + memory.states.file == updates.file);
    int64_t files = 0;
    for (const auto& store : strategy.shard_stores.stores) files += store->bytes().file;
    CHECK(memory.parameters.file == files - updates.file);
    CHECK(memory.parameters.device + memory.file_buffers.device + updates_in_memory ==
          strategy.store->persistent_bytes() + updates.host);
    CHECK(memory.saved_inputs.total() == 0);
  });
}

std::string name_of(const Case& row) {
  const configs::Config& config = row.config;
  return fmt::format(
      "stage {}, {} ranks, optimizer at {}, parameters at {}, precision {}, {} micro",
      config.zero.stage, row.ranks, static_cast<int>(config.zero.offload_optimizer.device),
      static_cast<int>(config.zero.offload_param.device), static_cast<int>(config.precision),
      config.batch.accumulation_steps);
}

configs::Config config_of(int stage, OffloadDevice optimizer, OffloadDevice parameters,
                          const TempFolder& directory) {
  configs::Config config;
  config.zero.stage = stage;
  config.zero.param_persistence_threshold_elements = 0;
  config.zero.offload_optimizer.device = optimizer;
  config.zero.offload_optimizer.nvme_path = directory.path().string();
  config.zero.offload_param.device = parameters;
  config.zero.offload_param.nvme_path = directory.path().string();
  config.zero.offload_param.max_in_cpu_elements = 0;
  return config;
}

}  // namespace

TEST_CASE("shares that near ranks keep are planned") {
  const TempFolder directory;
  for (const int64_t near : {2, 4}) {
    Case row{4, config_of(3, OffloadDevice::kNone, OffloadDevice::kNone, directory)};
    row.config.zero.hpz_partition_size = near;
    check_case(row);
  }
}

TEST_CASE("what is planned is what training allocates, wherever it rests") {
  const TempFolder directory;
  for (const int ranks : {1, 2, 3}) {
    for (const int stage : {0, 1, 2, 3}) {
      for (const auto optimizer :
           {OffloadDevice::kNone, OffloadDevice::kCpu, OffloadDevice::kNvme}) {
        for (const auto parameters : {OffloadDevice::kNone, OffloadDevice::kNvme}) {
          if (stage < 3 && parameters != OffloadDevice::kNone) continue;
          for (const auto precision : {Precision::kFp32, Precision::kBf16}) {
            Case row{ranks, config_of(stage, optimizer, parameters, directory)};
            row.config.precision = precision;
            row.config.batch.accumulation_steps = precision == Precision::kBf16 ? 2 : 1;
            INFO(name_of(row));
            check_case(row);
            row.config.batch.accumulation_steps = 3 - row.config.batch.accumulation_steps;
            INFO(name_of(row));
            check_case(row);
          }
        }
      }
    }
  }
}

TEST_CASE("the plan follows tied and frozen weights, buckets, persistence, ratio and max_in_cpu") {
  const TempFolder directory;
  const auto check = [&](const char* what, int ranks, const auto& change) {
    for (const int stage : {1, 3}) {
      const auto parameters = stage == 3 ? OffloadDevice::kNvme : OffloadDevice::kNone;
      Case row{ranks, config_of(stage, OffloadDevice::kNvme, parameters, directory)};
      row.config.precision = Precision::kBf16;
      row.config.batch.accumulation_steps = 2;
      change(row);
      CAPTURE(what);
      CAPTURE(stage);
      check_case(row);
    }
  };
  check("tied", 2, [](Case& row) { row.chain.tied = true; });
  check("frozen", 2, [](Case& row) { row.chain.frozen = true; });
  check("small buckets", 2, [](Case& row) { row.config.zero.reduce_bucket_elements = 300; });
  check("no overlap", 3, [](Case& row) { row.config.zero.overlap_comm = false; });
  check("all-reduce", 3, [](Case& row) { row.config.zero.reduce_scatter = false; });
  check("prefetch", 2, [](Case& row) { row.config.zero.prefetch_bucket_elements = 0; });
  check("persistence", 2,
        [](Case& row) { row.config.zero.param_persistence_threshold_elements = 1000; });
  check("ratio", 2, [](Case& row) { row.config.zero.offload_optimizer.ratio = 0.5; });
  check("max_in_cpu", 2,
        [](Case& row) { row.config.zero.offload_param.max_in_cpu_elements = 2000; });
  check("tiles", 1, [](Case& row) { row.config.zero.sub_group_size_elements = 1; });
  check("bf16 masters", 2, [](Case& row) {
    row.config.optimizer.bf16_states = true;
    row.config.optimizer.bf16_masters = true;
  });
  check("coded states", 2, [](Case& row) {
    row.config.optimizer.kind = configs::OptimizerConfig::Kind::kAdamW8bit;
    row.config.optimizer.min_8bit_size = 800;  // matrices of layers
  });
  check("no states", 2, [](Case& row) {
    row.config.optimizer.kind = configs::OptimizerConfig::Kind::kSgd;
    row.config.precision = Precision::kFp32;
  });
}

TEST_CASE("coded states take two bytes for each element, and eight for each block of 256") {
  const TempFolder directory;
  const model::Blocks blocks = testing::make_chain({.hidden = 64});
  configs::Config config = config_of(1, OffloadDevice::kNone, OffloadDevice::kNone, directory);
  config.precision = Precision::kBf16;
  config.optimizer.kind = configs::OptimizerConfig::Kind::kAdamW8bit;
  const UnitPlan plan =
      plan_units(blocks, 1, {.min_coded_elements = optim::min_coded_elements(config.optimizer)});
  const MemoryPlan memory = plan_memory(plan, config, torch::kCPU, step_of(blocks.size(), 1));
  // Three matrices of 64 x 64 are coded; embedding and head of 19 x 64, and biases, are not.
  constexpr int64_t kCoded = 3 * 4096, kSmall = 2 * 19 * 64 + 3 * 64;
  CHECK(memory.states.device == kCoded * 2 + kCoded / 256 * 8 + kSmall * 8);
  CHECK(memory.masters.device == (kCoded + kSmall) * 4);
  config.zero.offload_optimizer.device = OffloadDevice::kNvme;
  UnitPlan offloaded = plan;
  const OffloadPlan rest = plan_offload(offloaded, config, /*separate_device=*/false);
  CHECK(rest.tile_elements % (offload::kChunkAlignment * 256) == 0);
  CHECK(rest.updates.tiles_in_use == 5);
}

TEST_CASE(
    "a run that only evaluates holds parameters and nothing else, wherever states would rest") {
  const TempFolder directory;
  for (const auto place : {OffloadDevice::kNone, OffloadDevice::kCpu, OffloadDevice::kNvme}) {
    for (const auto precision : {Precision::kFp32, Precision::kBf16}) {
      testing::run_ranks(2, [&](std::shared_ptr<comm::DeviceMesh> mesh) {
        const model::Blocks blocks = testing::make_chain({.hidden = 40});
        UnitPlan plan = plan_units(blocks, *mesh, {.trains = false});
        configs::Config config = config_of(3, place, OffloadDevice::kNone, directory);
        config.precision = precision;
        config.batch.accumulation_steps = 2;
        config.optimizer.kind =
            configs::OptimizerConfig::Kind::kAdagrad;  // whose states are filled
        config.optimizer.initial_accumulator_value = 0.1;
        for (const auto device : {torch::kCPU, torch::kCUDA}) {
          const MemoryPlan memory = plan_memory(
              plan, config, device, {.accesses = {0, 1, 2, 3, 4}, .backward_order = {}});
          MemoryPlan rest = memory;
          rest.parameters = rest.gathered = rest.loading = {};
          CHECK(rest.peak() == TierBytes{});
        }
        const Strategy strategy = make_strategy(plan, config, *mesh);
        CHECK(strategy.grads->persistent_bytes() == 0);
        for (const auto& store : strategy.shard_stores.stores) CHECK(store->bytes().host == 0);
      });
    }
  }
  CHECK(std::filesystem::is_empty(directory.path()));
}

TEST_CASE("beside a GPU what is offloaded rests in pinned or other host memory") {
  const TempFolder directory;
  const model::Blocks blocks = testing::make_chain();
  const UnitPlan plan = plan_units(blocks, 2);
  const configs::Config on_gpu =
      config_of(3, OffloadDevice::kNone, OffloadDevice::kNone, directory);
  configs::Config away = config_of(3, OffloadDevice::kCpu, OffloadDevice::kCpu, directory);
  const StepEstimate step = step_of(blocks.size(), 1);
  const MemoryPlan here = plan_memory(plan, on_gpu, torch::kCUDA, step);
  MemoryPlan there = plan_memory(plan, away, torch::kCUDA, step);
  CHECK(here.parameters.host + here.parameters.pinned == 0);
  CHECK(there.parameters == TierBytes{.pinned = here.parameters.device});
  CHECK(there.states == TierBytes{.pinned = here.states.device});
  CHECK(there.gathered == here.gathered);
  CHECK(there.gradients == TierBytes{.pinned = here.gradients.device});
  CHECK(there.staging.device > 0);
  CHECK(here.staging == TierBytes{});
  CHECK(here.measuring == TierBytes{});
  CHECK(there.measuring.pinned > 0);
  away.zero.offload_optimizer.pin_memory = false;
  there = plan_memory(plan, away, torch::kCUDA, step);
  CHECK(there.states == TierBytes{.host = here.states.device});
  CHECK(plan_memory(plan, away, torch::kCPU, step).states == here.states);
  away.zero.offload_optimizer.device = OffloadDevice::kNvme;
  CHECK(plan_memory(plan, away, torch::kCUDA, step).file_buffers.host > 0);
  away.zero.offload_optimizer.pin_memory = true;
  CHECK(plan_memory(plan, away, torch::kCUDA, step).file_buffers.pinned > 0);
  // No copy touches what the host updates, but its gradients come through the link.
  away.zero.offload_optimizer.step = configs::OffloadOptimizerConfig::UpdateDevice::kCpu;
  CHECK(plan_memory(plan, away, torch::kCUDA, step).file_buffers.pinned == 0);
  away.zero.offload_optimizer.device = OffloadDevice::kCpu;
  there = plan_memory(plan, away, torch::kCUDA, step);
  CHECK(there.states == TierBytes{.host = here.states.device});
  CHECK(there.gradients == TierBytes{.pinned = here.gradients.device});
  CHECK(there.measuring == TierBytes{});
}

TEST_CASE("tiles that stream through a GPU take the memory that is planned for them") {
  const TempFolder directory;
  for (const auto precision : {Precision::kFp32, Precision::kBf16}) {
    configs::Config config = config_of(2, OffloadDevice::kCpu, OffloadDevice::kNone, directory);
    config.precision = precision;
    config.zero.offload_optimizer.step = configs::OffloadOptimizerConfig::UpdateDevice::kGpu;
    config.zero.sub_group_size_elements = offload::kChunkAlignment;
    const model::Blocks blocks = testing::make_chain({.hidden = 256});  // of 17 tiles
    UnitPlan plan = plan_units(blocks, 1);
    const MemoryPlan memory = plan_memory(plan, config, torch::kCUDA, {});
    comm::DeviceMesh mesh(testing::kFakeDevice, comm::make_solo_group());
    Strategy strategy = make_strategy(plan, config, mesh, testing::late_link());
    for (int step = 0; step < 2; ++step) run_step(plan, strategy, 1);
    strategy.params->set_access_order({});
    for (size_t unit = 0; unit < plan.units.size(); ++unit)
      testing::read_master(*strategy.optimizer, unit);
    int64_t tiles = -memory.masters.pinned - memory.states.pinned;
    for (offload::ShardStore* store : update_stores(strategy)) tiles += store->bytes().host;
    const int64_t tile = offload::kChunkAlignment * static_cast<int64_t>(sizeof(float));
    const int64_t arrays = precision == Precision::kBf16 ? 3 : 2;
    CHECK(tiles == 5 * arrays * tile);  // one use, and four ahead
    CHECK(memory.staging.device == tiles + 2 * tile);
  }
}

TEST_CASE("each key for page-locked memory speaks of its own kind; gradients follow either") {
  const TempFolder directory;
  const UnitPlan plan = plan_units(testing::make_chain(), 2);
  configs::Config config = config_of(3, OffloadDevice::kCpu, OffloadDevice::kCpu, directory);
  config.zero.offload_optimizer.pin_memory = false;
  const MemoryPlan memory = plan_memory(plan, config, torch::kCUDA, {});
  CHECK(memory.states.pinned == 0);
  CHECK(memory.parameters.host == 0);
  CHECK(memory.gradients.host == 0);
}

TEST_CASE("the peak is training's, or that of loading or measuring where these need more") {
  MemoryPlan memory;
  memory.parameters.device = 100;
  memory.states.device = 50;
  memory.loading.host = 30;
  CHECK(memory.peak() == TierBytes{.device = 150, .host = 30});
  memory.loading.device = 60;
  CHECK(memory.peak() == TierBytes{.device = 160, .host = 30});
  memory.states.file = 7;
  CHECK(memory.peak().total() == 197);
  memory.measuring = {.device = 170, .host = 20};  // before there are parameters
  CHECK(memory.peak() == TierBytes{.device = 170, .host = 30, .file = 7});
  memory.held.host = 15;
  CHECK(memory.peak() == TierBytes{.device = 170, .host = 45, .file = 7});
}

TEST_CASE("a buffer smaller than the largest shard of parameters is refused with the smallest") {
  const TempFolder directory;
  const model::Blocks blocks = testing::make_chain({.hidden = 40});
  const UnitPlan plan = plan_units(blocks, 2);
  configs::Config config = config_of(3, OffloadDevice::kNone, OffloadDevice::kNvme, directory);
  config.zero.offload_param.buffer_size_elements = 100;
  int64_t largest = 0;
  for (const Unit& unit : plan.units) largest = std::max(largest, unit.layout.shard_numel());
  const std::string end = fmt::format("the smallest value that works is {}", largest);
  CHECK_THROWS_WITH_AS(check_sizes(plan, config, torch::kCPU), doctest::Contains(end.c_str()),
                       Error);
  config.zero.offload_param.buffer_size_elements = largest;
  CHECK_NOTHROW(check_sizes(plan, config, torch::kCPU));
}

}  // namespace zeroth::zero::memory_plan_test
