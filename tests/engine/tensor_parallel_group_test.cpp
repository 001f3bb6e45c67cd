#include "engine/start.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <mutex>

#include "engine/memory/memory_estimate.h"
#include "model/blocks/build_blocks.h"
#include "tests/support/ranks.h"
#include "zero/strategy.h"

namespace zeroth::engine::tensor_parallel_group_test {
namespace {

constexpr int64_t kHidden = 256;

model::ModelSpec spec_of_llama() {
  model::ModelSpec spec;
  spec.family = "llama";
  spec.vocab_size = 1001;
  spec.hidden_size = kHidden;
  spec.intermediate_size = 688;
  spec.num_layers = 4;
  spec.num_heads = 8;
  spec.num_kv_heads = 4;
  spec.head_dim = 32;
  spec.max_positions = 64;
  return spec;
}

// Of the first rank of `data` x `tensor`.
zero::MemoryPlan memory_of(int data, int tensor, int stage) {
  configs::Config config;
  config.precision = configs::Precision::kBf16;
  config.zero.stage = stage;
  config.zero.param_persistence_threshold_elements = 0;
  config.tensor_parallel.size = tensor;
  const EstimateOptions options{
      .shape = comm::MeshShape::data_parallel(data).with(comm::MeshDim::kTp, tensor)};
  const model::Blocks blocks = model::build_blocks(spec_of_llama(), fake_tensor_parallel(config));
  return plan_memory(plan_of(blocks, config, options), config, options);
}

}  // namespace

TEST_CASE("neighbours share layers; one rank alone shares none") {
  configs::Config config;
  config.tensor_parallel.size = 2;
  const auto grid = comm::MeshShape().with(comm::MeshDim::kDp, 2).with(comm::MeshDim::kTp, 2);
  testing::run_ranks(4,
                     [&](std::shared_ptr<comm::DeviceMesh> mesh) {
                       const auto ranks = tensor_parallel_group(*mesh, config);
                       CHECK(ranks->size() == 2);
                       CHECK(ranks->rank() == mesh->rank() % 2);
                       const torch::Tensor sum = torch::full({1}, mesh->rank());
                       ranks->all_reduce(sum, comm::ReduceOp::kSum, "numbers");
                       CHECK(sum.item<int64_t>() == (mesh->rank() < 2 ? 1 : 5));
                     },
                     {.grid = grid});
  testing::run_ranks(2, [&](std::shared_ptr<comm::DeviceMesh> mesh) {
    CHECK_FALSE(tensor_parallel_group(*mesh, configs::Config()));
  });
  CHECK(fake_tensor_parallel(config)->size() == 2);
  CHECK_FALSE(fake_tensor_parallel(configs::Config()));
}

TEST_CASE("where two ranks share layers, each takes half of what one rank takes, and all norms") {
  const int64_t norms = (2 * spec_of_llama().num_layers + 1) * kHidden;
  for (const int stage : {0, 1, 2, 3}) {
    for (const int data : {1, 2}) {
      CAPTURE(stage);
      CAPTURE(data);
      const zero::MemoryPlan one = memory_of(data, 1, stage), two = memory_of(data, 2, stage);
      const auto is_half = [&](zero::TierBytes zero::MemoryPlan::*kind, int64_t width) {
        const auto half = static_cast<double>((one.*kind).total()) / 2;
        const auto shared = static_cast<double>((two.*kind).total());
        CHECK(shared <= 1.03 * half + static_cast<double>(width * norms));
        CHECK(shared >= half);
      };
      is_half(&zero::MemoryPlan::parameters, 2);
      is_half(&zero::MemoryPlan::gradients, 4);
      is_half(&zero::MemoryPlan::masters, 4);
      is_half(&zero::MemoryPlan::states, 8);
    }
  }
}

namespace {

// What a rank holds behind a step, in bytes: on the rank that holds most.
struct Held {
  int64_t weights = 0, gradients = 0, updates = 0;
};

Held held_by(int data, int tensor, int stage) {
  configs::Config config;
  config.precision = configs::Precision::kBf16;
  config.zero.stage = stage;
  config.zero.param_persistence_threshold_elements = 0;
  config.tensor_parallel.size = tensor;
  std::mutex mutex;
  Held largest;
  testing::run_ranks(
      data * tensor,
      [&](std::shared_ptr<comm::DeviceMesh> mesh) {
        const model::ModelSpec spec = spec_of_llama();
        const model::Blocks blocks =
            model::build_blocks(spec, tensor_parallel_group(*mesh, config));
        zero::UnitPlan plan = zero::plan_units(blocks, *mesh);
        const zero::Strategy strategy = zero::make_strategy(plan, config, *mesh);
        int64_t updates = 0;
        for (const auto& store : strategy.shard_stores.stores) {
          updates += store->bytes().device + store->bytes().host;
        }
        const std::lock_guard lock(mutex);
        largest.weights = std::max(largest.weights, strategy.store->persistent_bytes());
        largest.gradients = std::max(largest.gradients, strategy.grads->persistent_bytes());
        largest.updates = std::max(largest.updates, updates);
      },
      {.grid = comm::MeshShape::data_parallel(data).with(comm::MeshDim::kTp, tensor)});
  return largest;
}

}  // namespace

TEST_CASE("what stores have allocated on one of two ranks that share layers is half, and norms") {
  const int64_t norms = (2 * spec_of_llama().num_layers + 1) * kHidden;
  for (const int stage : {0, 1, 2, 3}) {
    for (const int data : {1, 2}) {
      CAPTURE(stage);
      CAPTURE(data);
      const Held one = held_by(data, 1, stage), two = held_by(data, 2, stage);
      const auto is_half = [&](int64_t Held::*kind, int64_t width) {
        const double half = static_cast<double>(one.*kind) / 2;
        CHECK(half > 0);
        CHECK(static_cast<double>(two.*kind) >= half);
        CHECK(static_cast<double>(two.*kind) <= 1.03 * half + static_cast<double>(width * norms));
      };
      is_half(&Held::weights, 2);
      is_half(&Held::gradients, 4);
      is_half(&Held::updates, 4 + 8);
    }
  }
}

}  // namespace zeroth::engine::tensor_parallel_group_test
