// A step that throws half-way leaves updates that wait: they are neither lost nor applied twice.
#include <ATen/ATen.h>
#include <doctest/doctest.h>

#include "base/error.h"
#include "engine/initial_values.h"
#include "engine/train_engine.h"
#include "tests/engine/chain_config.h"
#include "tests/support/chain.h"
#include "tests/support/ranks.h"
#include "tests/support/temp_folder.h"

namespace zeroth::engine {
namespace {

using configs::RestingPlace;

// Passes on what it gets, until it is told to throw.
struct Trap final : model::Block {
  explicit Trap(int* calls_left) : Block("trap"), calls_left_(calls_left) {}
  torch::Tensor forward(const torch::Tensor& x, const model::MicroBatch&) override {
    if ((*calls_left_)-- == 0) throw Error("trapped");
    return x * 1;
  }
  int* calls_left_;
};

struct Trained {
  std::vector<double> losses;
  std::vector<torch::Tensor> masters;
};

// Steps and evaluations of which three are interrupted in the middle of the chain.
Trained train(const configs::Config& config, const std::shared_ptr<comm::Mesh>& mesh) {
  int calls_left = -1;
  model::Blocks blocks = testing::make_chain({.tied = true});
  blocks.insert(blocks.begin() + 2, std::make_shared<Trap>(&calls_left));
  const auto engine = testing::make_engine(std::move(blocks), config, mesh);
  testing::ChainLoader loader({.rank = mesh->rank(), .world_size = mesh->world_size()});
  Trained trained;
  for (int step = 0; step < 6; ++step) {
    if (step % 2 == 1) {
      calls_left = 0;
      CHECK_THROWS_AS(engine->train_batch(loader), Error);
      calls_left = 0;
      CHECK_THROWS_AS(engine->eval_batch(loader, 2), Error);
      calls_left = step == 3 ? 1 : -1;
      if (step == 3) CHECK_THROWS_AS(engine->eval_batch(loader, 2), Error);
    }
    trained.losses.push_back(engine->train_batch(loader).loss);
  }
  for (size_t unit = 0; unit < engine->plan().units.size(); ++unit) {
    trained.masters.push_back(engine->optimizer().master(unit).clone());
  }
  return trained;
}

}  // namespace

TEST_CASE(
    "after steps that threw half-way, offloaded training goes on with the bits of plain one") {
  for (const int stage : {0, 2, 3}) {
    for (const auto precision : {configs::Precision::kFp32, configs::Precision::kBf16}) {
      CAPTURE(stage);
      CAPTURE(static_cast<int>(precision));
      testing::run_ranks(2, [&](std::shared_ptr<comm::Mesh> mesh) {
        const TempFolder folder;
        configs::Config config = chain_config(6, 1, 2);
        config.precision = precision;
        config.zero.stage = stage;
        const Trained plain = train(config, mesh);
        config.zero.sub_group_size_elements = 64;
        config.zero.offload_optimizer.device = RestingPlace::kNvme;
        config.zero.offload_optimizer.nvme_path = folder.path();
        if (stage == 3) config.zero.offload_param.device = RestingPlace::kNvme;
        config.zero.offload_param.nvme_path = folder.path();
        config.zero.offload_param.max_in_cpu_elements = 0;
        const Trained offloaded = train(config, mesh);
        CHECK(offloaded.losses == plain.losses);
        for (size_t unit = 0; unit < plain.masters.size(); ++unit) {
          CHECK(at::equal(offloaded.masters[unit], plain.masters[unit]));
        }
      });
    }
  }
}

}  // namespace zeroth::engine
